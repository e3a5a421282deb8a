"""The command line of the bench: each option's type, range and help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import BATCH, CLIENTS, DP, TP


def _rate(text: str) -> float:
    if text == "max":
        return 0.0
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise typer.BadParameter(
            f"must be a number of steps per second above 0, or max (got {text})"
        )
    return value


def _default(value: int) -> str:
    return f"(default: {value}, or the topology file's)"


Slots = Annotated[int | None, typer.Option(min=1, help=f"slots of a DP rank {_default(BATCH)}")]
Steps = Annotated[
    int | None, typer.Option(min=1, help="run requests of this many steps, instead of a trace")
]
Requests = Annotated[int, typer.Option(min=1, help="requests drawn from the built-in sample")]
Arrivals = Annotated[
    float | None, typer.Option(min=0.001, help="requests a second (default: all at once)")
]
Rate = Annotated[float, typer.Option(parser=_rate, metavar="N|max", help="steps/s of each rank")]
Pin = Annotated[
    bool, typer.Option(help="run all workers on one core and all clients on another core")
]
TokensPerRow = Annotated[int, typer.Option(min=1, help="tokens of a request in one step")]
TopLogprobs = Annotated[int | None, typer.Option(min=0, help="top logprobs of each token")]
WantText = Annotated[
    bool, typer.Option(help="make text too, with a vocabulary of 131,072 words, and check it")
]
DPSize = Annotated[int | None, typer.Option(min=1, help=f"data-parallel ranks {_default(DP)}")]
TPSize = Annotated[int | None, typer.Option(min=1, help=f"tensor-parallel ranks {_default(TP)}")]
ProcessorCount = Annotated[int | None, typer.Option(min=1, help="processor processes")]
ClientCount = Annotated[
    int | None, typer.Option(min=1, help=f"client processes {_default(CLIENTS)}")
]
Consume = Annotated[
    str,
    typer.Option(
        metavar="columns|streams",
        help="how clients read: frames of columns, or one stream for each request",
    ),
]
PreemptRate = Annotated[
    float, typer.Option(min=0, max=1, help="probability that a bound request is preempted")
]
AbortRate = Annotated[
    float,
    typer.Option(
        min=0,
        max=1,
        help="probability that a request ends early. The engine aborts half of these requests,"
        " and the clients cancel the other half",
    ),
]
Seed = Annotated[int, typer.Option(help="seed of all random choices")]
TraceFile = Annotated[
    Path | None, typer.Option(help="CSV file of arrivals and lengths, in Azure or Mooncake form")
]
SpeedUp = Annotated[float, typer.Option(help="replay the trace this many times as fast")]
DiscardTokens = Annotated[
    bool, typer.Option(help="with --steps: make tokens but do not publish them, as a baseline")
]
TopologyFile = Annotated[
    Path | None, typer.Option(help="YAML file of the topology. The options override it")
]
ReportFile = Annotated[Path | None, typer.Option("--json", help="write the report to this file")]
ChaosSpec = Annotated[
    str | None,
    typer.Option(
        metavar="all|KIND[=WEIGHT],...",
        help="kill, stop and slow down processes, remove files and send bad bytes while the run"
        " goes on. docs/operating.md lists the kinds",
    ),
]
Minutes = Annotated[float, typer.Option(help="length of a run with --chaos")]

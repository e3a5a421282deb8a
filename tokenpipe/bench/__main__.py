"""Measure the whole pipeline with real processes, and prove that every token arrived."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tokenpipe.errors import TokenpipeError

from .options import BATCH, CLIENTS, DP, TP, Options
from .progress_bar import progress_bar
from .report import table
from .run import Stopped, run
from .stop_signals import StopSignals

app = typer.Typer(add_completion=False, help=__doc__, pretty_exceptions_enable=False)


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


def _own(default: int) -> str:
    return f"(default: {default}, or as the topology file says)"


@app.command()
def main(
    batch: Annotated[
        int | None, typer.Option(min=1, help=f"slots of a DP rank {_own(BATCH)}")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="requests of so many steps, instead of a trace")
    ] = None,
    requests: Annotated[
        int, typer.Option(min=1, help="requests drawn from the built-in sample")
    ] = Options.requests,
    arrivals: Annotated[
        float | None, typer.Option(min=0.001, help="of them a second; else all at once")
    ] = None,
    rate: Annotated[
        float, typer.Option(parser=_rate, metavar="N|max", help="steps/s of each rank")
    ] = "max",  # type: ignore[assignment]
    pin: Annotated[bool, typer.Option(help="workers on one core, clients on the next")] = False,
    tokens_per_row: Annotated[int, typer.Option(min=1)] = 1,
    logprobs: Annotated[int | None, typer.Option(min=0, help="top-k beside each token")] = None,
    text: Annotated[
        bool, typer.Option(help="make text of them, of a vocabulary of 131,072 words")
    ] = False,
    dp: Annotated[int | None, typer.Option(min=1, help=f"data-parallel ranks {_own(DP)}")] = None,
    tp: Annotated[int | None, typer.Option(min=1, help=f"tensor-parallel ranks {_own(TP)}")] = None,
    processors: Annotated[int | None, typer.Option(min=1)] = None,
    clients: Annotated[
        int | None, typer.Option(min=1, help=f"client processes {_own(CLIENTS)}")
    ] = None,
    consume: Annotated[
        str, typer.Option(metavar="columns|streams", help="how a client reads")
    ] = "columns",
    preempt_rate: Annotated[
        float, typer.Option(min=0, max=1, help="chance per bind")
    ] = Options.preempt_rate,
    abort_rate: Annotated[
        float,
        typer.Option(min=0, max=1, help="half by the engine, per bind; half by clients, each once"),
    ] = Options.abort_rate,
    seed: Annotated[int, typer.Option()] = 0,
    trace: Annotated[
        Path | None, typer.Option(help="CSV of arrivals and lengths, Azure or Mooncake form")
    ] = None,
    speed_up: Annotated[float, typer.Option(help="replay the trace so many times as fast")] = 1.0,
    discard: Annotated[
        bool, typer.Option(help="make the tokens of --steps and publish none: the baseline")
    ] = False,
    topology: Annotated[Path | None, typer.Option(help="YAML; the options given go on top")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the report there")] = None,
) -> None:
    """Run the pipeline on synthetic tokens; exit status 1 when one of them is wrong."""
    console = Console()
    signals = StopSignals()
    try:
        options = Options(
            batch=batch,
            steps=steps,
            requests=requests,
            arrivals=arrivals,
            rate=rate or None,
            pin=pin,
            tokens_per_row=tokens_per_row,
            logprobs=logprobs,
            text=text,
            dp=dp,
            tp=tp,
            processors=processors,
            clients=clients,
            consume=consume,
            preempt_rate=preempt_rate,
            abort_rate=abort_rate,
            seed=seed,
            trace=trace,
            speed_up=speed_up,
            discard=discard,
            topology=topology,
        )
        report = _watched(options, console, signals)
    except Stopped:
        signals.ignore()
        Console(stderr=True).print("interrupted; everything it had started is gone")
        sys.exit(signals.exit_status)
    except TokenpipeError as error:
        Console(stderr=True).print(f"[red]{type(error).__name__}[/red]: {error}", highlight=False)
        sys.exit(2)
    if json_file is not None:
        json_file.write_text(json.dumps(report, indent=1) + "\n")
    console.print(table(report))
    sys.exit(0 if report["ok"] else 1)


def _watched(options: Options, console: Console, signals: StopSignals) -> dict[str, object]:
    if not console.is_terminal:
        return run(options, stop=signals.asked)
    with progress_bar(console) as shown:
        return run(options, shown.show, signals.asked)


if __name__ == "__main__":
    app()

"""Measure the whole pipeline with real processes, and prove that each token arrives."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import typer
from rich.console import Console

from tokenpipe.errors import TokenpipeError

from . import command_line as given
from .options import Options
from .progress_bar import progress_bar
from .report import table
from .run import Stopped, run
from .stop_signals import BenchSignals

app = typer.Typer(add_completion=False, help=__doc__, pretty_exceptions_enable=False)


@app.command()
def main(
    batch: given.Slots = None,
    steps: given.Steps = None,
    requests: given.Requests = Options.requests,
    arrivals: given.Arrivals = None,
    rate: given.Rate = "max",  # type: ignore[assignment]
    pin: given.Pin = False,
    tokens_per_row: given.TokensPerRow = 1,
    logprobs: given.TopLogprobs = None,
    text: given.WantText = False,
    dp: given.DPSize = None,
    tp: given.TPSize = None,
    processors: given.ProcessorCount = None,
    clients: given.ClientCount = None,
    consume: given.Consume = Options.consume,
    preempt_rate: given.PreemptRate = Options.preempt_rate,
    abort_rate: given.AbortRate = Options.abort_rate,
    seed: given.Seed = 0,
    trace: given.TraceFile = None,
    speed_up: given.SpeedUp = 1.0,
    discard: given.DiscardTokens = False,
    topology: given.TopologyFile = None,
    chaos: given.ChaosSpec = None,
    minutes: given.Minutes = Options.minutes,
    json_file: given.ReportFile = None,
) -> None:
    """Run the pipeline on synthetic tokens. The exit status is 1 if a token is wrong."""
    values = {name: value for name, value in locals().items() if name != "json_file"}
    sys.exit(run_and_show({**values, "rate": rate or None}, json_file))


def run_and_show(values: dict[str, object], json_file: Path | None) -> int:
    """Run the bench with these Options, print the report and return the exit status."""
    console, signals = Console(), BenchSignals()
    try:
        report = _run(Options(**values), console, signals)  # type: ignore[arg-type]
    except Stopped:
        signals.ignore()
        Console(stderr=True).print("The bench was stopped, and so were all of its processes.")
        return signals.exit_status
    except TokenpipeError as error:
        Console(stderr=True).print(f"[red]{type(error).__name__}[/red]: {error}", highlight=False)
        return 2
    if json_file is not None:
        json_file.write_text(json.dumps(report, indent=1) + "\n")
    console.print(table(report))
    return 0 if report["ok"] else 1


def _run(options: Options, console: Console, signals: BenchSignals) -> dict[str, object]:
    if not console.is_terminal:
        return run(options, stop=signals.asked)
    with progress_bar(console) as shown:
        return run(options, shown.show, signals.asked)


if __name__ == "__main__":
    app()

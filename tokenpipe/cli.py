"""The command line: `python -m tokenpipe <command>`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import tokenpipe
from tokenpipe.errors import ConfigError, StartupError, TokenpipeError
from tokenpipe.instance import default_base, sweep
from tokenpipe.layout import Layout, layout_of
from tokenpipe.postprocess import check_tokenizer
from tokenpipe.serve import ServerFailed, launch
from tokenpipe.topology import Topology
from tokenpipe.worker import SYNTHETIC, EngineSpec

app = typer.Typer(
    name="tokenpipe",
    help="The output path of an LLM inference engine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        print(f"tokenpipe {tokenpipe.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The output path of an LLM inference engine."""


@app.command("check")
def check_command(
    topology: Annotated[Path, typer.Argument(help="The topology's YAML file.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, with the configuration.")
    ] = False,
) -> None:
    """Print the lanes, sockets, owners and processes of a topology. Nothing is started."""
    read = Topology.load(topology)
    check_tokenizer(read.tokenizer)
    layout = layout_of(read)
    if as_json:
        print(json.dumps(layout.to_json_dict(read), indent=2))
    else:
        _print_layout(layout)


@app.command("serve")
def serve_command(
    topology: Annotated[
        Path | None,
        typer.Argument(help="The topology's YAML file. Without a file the defaults apply."),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            metavar="MODULE:FACTORY", help="class or function that makes each worker's executor"
        ),
    ] = SYNTHETIC,
    engine_arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="an argument for the factory. The value is JSON or text"
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="overrides api.host")] = None,
    port: Annotated[
        int | None, typer.Option(help="overrides api.port. 0 means any free port")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="overrides api.workers")] = None,
) -> None:
    """Start all processes of a topology. Its policies say which start again after a death."""
    read = Topology() if topology is None else Topology.load(topology)
    given = {"host": host, "port": port, "workers": workers}
    changes = {name: value for name, value in given.items() if value is not None}
    arguments = dict(_argument(text) for text in engine_arg or ())
    raise typer.Exit(launch(read.replaced(api=changes), EngineSpec(engine, arguments)))


def _argument(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name.isidentifier():
        raise ConfigError(f"--engine-arg {text!r}: must be NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


@app.command("gc")
def gc_command(
    runtime_dir: Annotated[
        Path | None,
        typer.Option(
            help="directory of the instances. Default: where instances are when the topology has no"
            " runtime_dir"
        ),
    ] = None,
) -> None:
    """Remove the directories of dead instances. Running instances are not changed."""
    for swept in sweep(default_base() if runtime_dir is None else runtime_dir):
        said = f" ({swept.said})" if swept.said else ""
        print(f"{swept.outcome}  {swept.directory}{said}")


def main() -> int:
    """Run the command line and return the exit status.

    2: the user's input is wrong. 1: a server failed. 3: a process did not become ready.
    """
    try:
        app(standalone_mode=True)
    except TokenpipeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1 if isinstance(error, ServerFailed) else 3 if isinstance(error, StartupError) else 2
    return 0


def _print_layout(layout: Layout) -> None:
    # A pipe gets wide lines, because they are for grep.
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(f"directory  {layout.directory}", markup=False, soft_wrap=True)
    _print_table(
        console,
        ["role", "rank", "runs in", "started by", "owns"],
        ((p.role, p.rank, p.runs_in, p.started_by, p.owns) for p in layout[1]),
    )
    _print_table(
        console,
        ["socket", "carries", "from", "to (binds, owns)", "at most"],
        ((*lane[:4], f"{lane.most_bytes / (1 << 20):g} MiB") for lane in layout.lanes),
    )


def _print_table(console: Console, head: list[str], rows: Iterable[tuple[Any, ...]]) -> None:
    table = Table(*head, box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    console.print()
    console.print(table, markup=False)

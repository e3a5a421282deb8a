"""Show the report of a run as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table

WRONG_TOKENS = ("lost", "duplicated", "misattributed", "reordered", "misscored", "misspelled")
WRONG_REQUESTS = ("short", "unreleased", "unexplained")
FLOOD = (
    "No rate was set, so rows wait in queues, and the latencies contain this wait."
    " To measure the latency of a step: --rate 100"
)
CPU = ("worker", "processor", "client", "engine")


def table(report: dict[str, Any]) -> Table:
    """Return a table for people. The JSON output has all values."""
    config, topology = report["config"], report["config"]["topology"]
    ranks = f"dp {topology['data_parallel_size']}, tp {topology['tensor_parallel_size']}"
    shown = Table(
        title=f"tokenpipe bench: {report['trace']['name']}, {ranks}, batch {config['batch']}",
        caption="\n".join(_captions(report)) or None,
        show_header=False,
    )
    shown.add_column(style="bold")
    shown.add_column(justify="right")
    shown.add_column(style="dim")
    for name, value, note in (*_counts(report), *_orders(report), *_measures(report)):
        if value:
            shown.add_row(name, value, note)
    for error in report["errors"]:
        shown.add_row("error", "", error)
    shown.add_row("verdict", _verdict(report), "")
    return shown


def _captions(report: dict[str, Any]) -> list[str]:
    config = report["config"]
    flood = [FLOOD] if config["rate"] is None and not config["discard"] else []
    return flood + [report["trace"]["credit"]] * bool(report["trace"]["credit"])


def _verdict(report: dict[str, Any]) -> str:
    if report["config"]["discard"]:
        return "[yellow]nothing was published[/yellow]"
    if report["ok"]:
        return "[green]every token once, in order[/green]"
    return "[red]WRONG[/red]"


def _counts(report: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    reasons = ", ".join(f"{n:,} {reason}" for reason, n in sorted(report["reasons"].items()))
    yield "requests", f"{report['ended']:,} of {report['requests']:,}", reasons
    yield "tokens out", f"{report['tokens_out']:,}", f"{report['tokens_in']:,} published"
    wrong = ", ".join(f"{report[name]} {name}" for name in WRONG_TOKENS if report[name])
    yield "wrong tokens", wrong or "none", ", ".join(WRONG_TOKENS)
    yield "wrong requests", _wrong_requests(report), ""


def _wrong_requests(report: dict[str, Any]) -> str:
    """Return which requests went wrong; an empty text if all are right."""
    missing = {"not ended": report["requests"] - report["ended"] if report["ended"] else 0}
    counts = missing | {name: report[name] for name in WRONG_REQUESTS}
    return ", ".join(f"{n} {name}" for name, n in counts.items() if n)


def _orders(report: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield how many preemptions and aborts were ordered, and how many took effect.

    An order may reach a request after its end.
    """
    events, cancelled = report["events"], report["cancelled"]
    preempts, aborts = events.get("preempt", 0), events.get("abort", 0)
    preempted = events.get("rescheduled_preempted", 0)
    if preempts:
        late = "; the others had ended" if preempted < preempts else ""
        yield "preempted", f"{preempted} of {preempts} ordered", f"and rescheduled{late}"
    if other := events.get("Rescheduled", 0) - preempted:
        yield "rescheduled for another reason", f"{other}", ""
    if aborts + cancelled:
        aborted = events.get("Aborted", 0)
        late = "; the others had ended" if aborted < aborts + cancelled else ""
        note = f"{aborts} ordered by the engine, {cancelled} cancelled by clients{late}"
        yield "aborted", f"{aborted} of {aborts + cancelled} ordered", note


def _measures(report: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    cpu, memory = report["cpu_us_per_token"], report["rss_mb"]
    yield "tokens/s", f"{report['tokens_per_s']:,}", f"{report['seconds']} s"
    yield "publish()", _quantiles(report["publish_us"]), "µs p50 / p99 / max"
    yield "publish to client", _quantiles(report["step_latency_us"]), "µs p50 / p99 / max"
    yield "tokens an item", _quantiles(report["item_tokens"]), "p50 / p99 / max"
    parts = _parts({name: f"{cpu[name]:.3f}" for name in CPU})
    yield "CPU", f"{cpu['total']:.3f}", f"µs a token: {parts}"
    parts = _parts({name: f"{mb:.0f}" for name, mb in memory.items()})
    yield "memory", f"{max(memory.values()):.0f}", f"MiB, the largest: {parts}"


def _parts(parts: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in parts.items())


def _quantiles(values: dict[str, float]) -> str:
    return " / ".join(f"{value:,.0f}" for value in values.values())

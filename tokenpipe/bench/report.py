"""Show the report of a run as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table

WRONG_TOKENS = ("lost", "duplicated", "misattributed", "reordered", "misscored", "misspelled")
WRONG_REQUESTS = ("short", "unreleased", "unexplained")
FLOOD = "A flood: latencies are time spent in queues. For the latency of a step: --rate 100"
CPU = ("worker", "processor", "client", "engine")


def table(report: dict[str, Any]) -> Table:
    """Return a table for people; the JSON has everything."""
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
    for name, value, note in (
        ("requests", f"{report['ended']:,} of {report['requests']:,}", _reasons(report)),
        ("tokens out", f"{report['tokens_out']:,}", f"{report['tokens_in']:,} published"),
        ("wrong tokens", _wrong(report), ", ".join(WRONG_TOKENS)),
        ("wrong requests", _wrong_requests(report), ""),
        *_happened(report),
        ("tokens/s", f"{report['tokens_per_s']:,}", f"{report['seconds']} s"),
        ("publish()", _quantiles(report["publish_us"]), "µs p50 / p99 / max"),
        ("publish to client", _quantiles(report["step_latency_us"]), "µs p50 / p99 / max"),
        ("tokens an item", _quantiles(report["item_tokens"]), "p50 / p99 / max"),
        (
            "CPU",
            f"{report['cpu_us_per_token']['total']:.3f}",
            "µs a token: " + _parts({p: f"{report['cpu_us_per_token'][p]:.3f}" for p in CPU}),
        ),
        (
            "memory",
            f"{max(report['rss_mb'].values()):.0f}",
            "MiB, the largest: " + _parts({p: f"{mb:.0f}" for p, mb in report["rss_mb"].items()}),
        ),
    ):
        if value:
            shown.add_row(name, value, note)
    for error in report["errors"]:
        shown.add_row("error", "", error)
    verdict = "[green]every token once, in order[/green]" if report["ok"] else "[red]WRONG[/red]"
    if config["discard"]:
        verdict = "[yellow]nothing was published[/yellow]"
    shown.add_row("verdict", verdict, "")
    return shown


def _captions(report: dict[str, Any]) -> list[str]:
    config = report["config"]
    flood = [FLOOD] if config["rate"] is None and not config["discard"] else []
    return flood + [report["trace"]["credit"]] * bool(report["trace"]["credit"])


def _wrong(report: dict[str, Any]) -> str:
    return ", ".join(f"{report[name]} {name}" for name in WRONG_TOKENS if report[name]) or "none"


def _happened(report: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Say what became of the preempts and aborts: an order may come after its request's end."""
    events, gone = report["events"], report["cancelled"]
    preempts, aborts = events.get("preempt", 0), events.get("abort", 0)
    back = events.get("rescheduled_preempted", 0)
    if preempts:
        late = "; the others ended before" if back < preempts else ""
        yield "preempted", f"{back} of {preempts} ordered", f"and rescheduled{late}"
    if other := events.get("Rescheduled", 0) - back:
        yield "rescheduled otherwise", f"{other}", ""
    if aborts + gone:
        done = events.get("Aborted", 0)
        late = "; the others ended before" if done < aborts + gone else ""
        by = f"by the engine {aborts}, given up by clients {gone}"
        yield "aborted", f"{done} of {aborts + gone} asked", f"{by}{late}"


def _parts(parts: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in parts.items())


def _wrong_requests(report: dict[str, Any]) -> str:
    """Say what else went wrong; nothing in a run that is right."""
    missing = {"not ended": report["requests"] - report["ended"] if report["ended"] else 0}
    counts = missing | {name: report[name] for name in WRONG_REQUESTS}
    return ", ".join(f"{n} {name}" for name, n in counts.items() if n)


def _reasons(report: dict[str, Any]) -> str:
    return ", ".join(f"{n:,} {reason}" for reason, n in sorted(report["reasons"].items()))


def _quantiles(values: dict[str, float]) -> str:
    return " / ".join(f"{value:,.0f}" for value in values.values())

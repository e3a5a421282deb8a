"""Show the report of a run as a table."""

from __future__ import annotations

from typing import Any

from rich.table import Table

WRONG_TOKENS = ("lost", "duplicated", "misattributed", "reordered", "misscored", "misspelled")
WRONG_REQUESTS = ("short", "unreleased", "unexplained")
CPU = ("worker", "processor", "client", "engine", "total")


def table(report: dict[str, Any]) -> Table:
    """Return a table for people; the JSON has everything."""
    config, topology = report["config"], report["config"]["topology"]
    ranks = f"dp {topology['data_parallel_size']}, tp {topology['tensor_parallel_size']}"
    shown = Table(
        title=f"tokenpipe bench: {report['trace']['name']}, {ranks}, batch {config['batch']}",
        caption=report["trace"]["credit"] or None,
        show_header=False,
    )
    shown.add_column(style="bold")
    shown.add_column(justify="right")
    shown.add_column(style="dim")
    events = report["events"]
    for name, value, note in (
        ("requests", f"{report['ended']:,} of {report['requests']:,}", _reasons(report)),
        ("tokens out", f"{report['tokens_out']:,}", f"{report['tokens_in']:,} published"),
        ("wrong tokens", _wrong(report), ", ".join(WRONG_TOKENS)),
        ("wrong requests", _wrong_requests(report), ""),
        (
            "preempted / aborted",
            f"{events.get('preempt', 0)} / {events.get('Aborted', 0)}",
            f"{report['given_up']} given up by clients",
        ),
        ("rescheduled", f"{events.get('Rescheduled', 0)}", ""),
        ("tokens/s", f"{report['tokens_per_s']:,}", f"{report['seconds']} s"),
        ("publish()", _quantiles(report["publish_us"]), "µs p50 / p99 / max"),
        ("publish to client", _quantiles(report["step_latency_us"]), "µs p50 / p99 / max"),
        ("tokens an item", _quantiles(report["item_tokens"]), "p50 / p99 / max"),
        (
            "CPU",
            " / ".join(f"{report['cpu_us_per_token'][part]:.3f}" for part in CPU),
            f"µs a token: {', '.join(CPU)}",
        ),
        (
            "memory",
            " / ".join(f"{value:.0f}" for value in report["rss_mb"].values()),
            f"MiB: {', '.join(report['rss_mb'])}",
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


def _wrong(report: dict[str, Any]) -> str:
    return " / ".join(str(report[name]) for name in WRONG_TOKENS)


def _wrong_requests(report: dict[str, Any]) -> str:
    """Say what else went wrong; nothing in a run that is right."""
    missing = {"not ended": report["requests"] - report["ended"] if report["ended"] else 0}
    counts = missing | {name: report[name] for name in WRONG_REQUESTS}
    return ", ".join(f"{n} {name}" for name, n in counts.items() if n)


def _reasons(report: dict[str, Any]) -> str:
    return ", ".join(f"{n:,} {reason}" for reason, n in sorted(report["reasons"].items()))


def _quantiles(values: dict[str, float]) -> str:
    return " / ".join(f"{value:,.0f}" for value in values.values())

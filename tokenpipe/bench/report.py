"""Show the report of a run as a table."""

from __future__ import annotations

from typing import Any

from rich.table import Table

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
        ("wrong tokens", _wrong(report), "lost, duplicated, misattributed, reordered"),
        ("preempted / aborted", f"{events.get('preempt', 0)} / {events.get('abort', 0)}", ""),
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
    shown.add_row("verdict", verdict, "")
    return shown


def _wrong(report: dict[str, Any]) -> str:
    names = ("lost", "duplicated", "misattributed", "reordered")
    return " / ".join(str(report[name]) for name in names)


def _reasons(report: dict[str, Any]) -> str:
    return ", ".join(f"{n:,} {reason}" for reason, n in sorted(report["reasons"].items()))


def _quantiles(values: dict[str, float]) -> str:
    return " / ".join(f"{value:,.0f}" for value in values.values())

"""Add up the reports of a run's processes. The keys are those of the JSON output."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tokenpipe.topology import Topology

from .machine_info import describe_machine
from .options import Options
from .traces import Trace

Report = dict[str, Any]
WRONG = ("lost", "duplicated", "misattributed", "reordered", "misscored", "misspelled", "short")


def summarise(
    options: Options,
    trace: Trace,
    topology: Topology,
    *,
    workers: list[Report],
    clients: list[Report],
    processor_cpu_s: float,
    engine_cpu_s: float,
    memory_mb: dict[str, float],
    events: dict[str, int],
    unreleased: int,
    faults: dict[str, int] | None = None,
) -> Report:
    """Return the report of a run. `ok` is False if a token or a request went wrong.

    `faults` counts the faults by kind; None without chaos. With chaos an error needs a code only.
    """
    tokens = sum(c["tokens"] for c in clients)
    reasons = sum((Counter(c["reasons"]) for c in clients), Counter[str]())
    codes = sum((Counter(c["error_codes"]) for c in clients), Counter[str]())
    untyped = 0 if faults is None else reasons["error"] - sum(codes.values())
    wrong = _wrong(clients, unreleased, untyped)
    wrong["unexplained"] = 0 if options.discard else _unexplained(reasons, events)
    ended, span = sum(reasons.values()), _span(clients)
    complete = options.discard or ended == len(trace.arrivals)
    # An engine that ends after the last token does not acknowledge rows behind it. So frames that
    # were not delivered are shown, and lost tokens decide.
    wrong_ends = 0 if faults is not None else reasons["error"]
    right = not (any(wrong.values()) or wrong_ends or events.get("Mismatch"))
    return {
        "requests": len(trace.arrivals),
        "ended": ended,
        "reasons": dict(reasons),
        "error_codes": dict(codes),
        "faults": faults,
        "cancelled": sum(c["cancelled"] for c in clients),
        "tokens_in": sum(w["tokens"] for w in workers),
        "tokens_out": tokens,
        **wrong,
        "undelivered_frames": sum(w["undelivered"] for w in workers),
        **_speed(tokens, span),
        "cpu_us_per_token": _cpu(workers, clients, processor_cpu_s, engine_cpu_s, tokens),
        **_quantiles(workers, clients),
        "rss_mb": _memory(workers, clients, memory_mb),
        "events": events,
        "errors": [error for c in clients for error in c["errors"]][:10],
        **_about(options, trace, topology),
        "ok": complete and right,
    }


def _about(options: Options, trace: Trace, topology: Topology) -> Report:
    return {
        "trace": {"name": trace.name, "credit": trace.credit, "skipped": trace.skipped},
        "config": {**options.as_dict(topology), "topology": topology.to_json_dict()},
        "machine": describe_machine(),
    }


def _wrong(clients: list[Report], unreleased: int, untyped: int) -> dict[str, int]:
    counts = {name: sum(c[name] for c in clients) for name in WRONG}
    return {**counts, "unreleased": unreleased, "untyped": untyped}


def with_leftovers(report: Report, endpoint: Path) -> Report:
    """Add what is left after the end of a run: 1 for the instance's directory. It must be 0."""
    left = int(endpoint.exists())
    return {**report, "left_behind": left, "ok": report["ok"] and not left}


def _unexplained(reasons: Counter[str], events: dict[str, int]) -> int:
    """Return by how much the clients' number of aborts differs from the engine's.

    A client that closed a stream does not see how its request ended.
    """
    aborted, seen = events.get("Aborted", 0), reasons["abort"]
    return max(seen - aborted, aborted - seen - reasons["closed"], 0)


def _speed(tokens: int, seconds: float) -> dict[str, float]:
    return {
        "seconds": round(seconds, 3),
        "tokens_per_s": round(tokens / seconds) if seconds else 0,
    }


def _span(clients: list[Report]) -> float:
    """Return the seconds from the first output of any client to the last one."""
    active = [c for c in clients if c["last"]]
    if not active:
        return 0.0
    return float(max(c["last"] for c in active) - min(c["first"] for c in active))


def _cpu(
    workers: list[Report],
    clients: list[Report],
    processor_cpu_s: float,
    engine_cpu_s: float,
    tokens: int,
) -> dict[str, float]:
    """Return CPU µs a token of each role. The clients' checks count as `verify`, not in `total`."""
    verify = sum(c["verify_s"] for c in clients)
    parts = {
        "worker": sum(w.get("cpu_s", 0.0) for w in workers),
        "processor": processor_cpu_s,
        "client": sum(c["cpu_s"] for c in clients) - verify,
        "engine": engine_cpu_s,
        "verify": verify,
    }
    parts["total"] = sum(parts.values()) - verify
    # With `discard` no token arrives, so the tokens that the workers made are counted.
    made = tokens or sum(w["tokens"] for w in workers) or 1
    return {name: round(1e6 * seconds / made, 4) for name, seconds in parts.items()}


def _quantiles(workers: list[Report], clients: list[Report]) -> dict[str, dict[str, float]]:
    return {
        "publish_us": _worst([w["publish_us"] for w in workers if w["publish_us"]]),
        "step_latency_us": _worst([c["latency_us"] for c in clients if c["latency_us"]]),
        "item_tokens": _worst([c["item_tokens"] for c in clients if c["item_tokens"]]),
    }


def _worst(parts: list[dict[str, float]]) -> dict[str, float]:
    """Return the highest value of each quantile, over all processes."""
    return {key: max(part[key] for part in parts) for key in parts[0]} if parts else {}


def _memory(
    workers: list[Report], clients: list[Report], memory_mb: dict[str, float]
) -> dict[str, float]:
    """Return MiB of each role: of the largest worker and client, and of the others as given."""
    return {
        **{name: round(value, 1) for name, value in memory_mb.items()},
        "worker": round(max((w.get("rss_mb", 0.0) for w in workers), default=0.0), 1),
        "client": round(max((c["rss_mb"] for c in clients), default=0.0), 1),
    }

"""Describe a child that did not become ready: what happened, when, the phase, the log."""

from __future__ import annotations

from .child import Child


def startup_report(child: Child, what: str, phase: str | None, now: float) -> str:
    """Return the lines of a StartupError about one child. `phase` is None for a ready child."""
    age, since = now - child.started, now - child.notify.phase_since
    lines = [f"{child}: {what}, {age:.1f} s after its start; phase: {phase or 'ready'}"]
    if phase is not None and since < age - 0.1:
        lines[0] += f", for {since:.1f} s"
    if child.notify.failure:  # the failure holds all that the log would show
        return "\n".join([*lines, *(f"  {line}" for line in child.notify.failure.splitlines())])
    lines.append(f"  log {child.log_path}:")
    lines += [f"  | {line}" for line in child.log_tail().splitlines()] or ["  | (nothing)"]
    return "\n".join(lines)

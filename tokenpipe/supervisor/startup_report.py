"""Say of a child that did not become ready: what happened, when, in which phase, and its log."""

from __future__ import annotations

from .child import Child


def startup_report(child: Child, what: str, phase: str | None, now: float) -> str:
    """Return the lines of a StartupError about one child, which is in `phase`, None for ready."""
    age, since = now - child.started, now - child.notify.phase_since
    lines = [f"{child}: {what}, {age:.1f} s after its start; phase: {phase or 'ready'}"]
    if phase is not None and since < age - 0.1:
        lines[0] += f", for {since:.1f} s"
    if child.notify.failure:  # it says all that its log would
        return "\n".join([*lines, *(f"  {line}" for line in child.notify.failure.splitlines())])
    lines.append(f"  log {child.log_path}:")
    lines += [f"  | {line}" for line in child.log_tail().splitlines()] or ["  | (nothing)"]
    return "\n".join(lines)

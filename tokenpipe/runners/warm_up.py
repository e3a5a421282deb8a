"""Run a model on made-up rows, so that the first request is not slower than later ones."""

from __future__ import annotations

from .devices import Device
from .model import GREEDY, Model, Row, Sampled
from .step_launcher import StepLauncher, lengths_of


def warm_up(
    launcher: StepLauncher, model: Model, device: Device, rows: int, tokens: int, steps: int
) -> None:
    """Prefill `rows` rows of `tokens` zeros, decode `steps` times, and free them again."""
    made_up = [
        Row(slot + 1, slot, (0,) * tokens, (), GREEDY, GREEDY.max_tokens, slot=slot, entered=True)
        for slot in range(rows)
    ]
    lengths = lengths_of(made_up)
    try:
        out = model.prefill(made_up)
        for step in range(steps + 1):
            own = isinstance(out, Sampled)
            sampled = out if own else launcher.sample([out], made_up, lengths + step)
            device.copy_off([sampled.tokens]).wait()
            if step == steps:
                break
            last = None if own else sampled.tokens.clip(min=0)
            out = model.decode(made_up, last, None if own else lengths + step + 1)
    finally:
        for row in made_up:
            model.free(row)

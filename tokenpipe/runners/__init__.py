"""Run the worker's side: what was sampled goes out, what to run next comes in."""

from .arrays import StepLogprobs
from .publisher import Publisher
from .step_lane import StepLane, StepLaneReader

__all__ = ["Publisher", "StepLane", "StepLaneReader", "StepLogprobs"]

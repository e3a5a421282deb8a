"""Run the worker's side: what was sampled goes out, what to run next comes in.

`Publisher` and `StepLane` know no framework; a model runner loads PaddlePaddle when it is made.
"""

from .arrays import StepLogprobs
from .faces import PlanLane, Publishes
from .model import Model, Row, Sampled
from .model_runner import ModelRunner
from .platforms import (
    CPUModelRunner,
    GPUModelRunner,
    MetaxModelRunner,
    XPUModelRunner,
    runner_for,
)
from .publisher import Publisher
from .step_lane import StepLane, StepLaneReader

__all__ = [
    "CPUModelRunner",
    "GPUModelRunner",
    "MetaxModelRunner",
    "Model",
    "ModelRunner",
    "PlanLane",
    "Publisher",
    "Publishes",
    "Row",
    "Sampled",
    "StepLane",
    "StepLaneReader",
    "StepLogprobs",
    "XPUModelRunner",
    "runner_for",
]

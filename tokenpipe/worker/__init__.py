"""Run one worker rank: it reads step plans and publishes sampled tokens.

A worker of your own uses `Publisher` and `StepLane`. `python -m tokenpipe.worker` runs an executor
in a process of its own. This room imports no framework.
"""

from .arrays import StepLogprobs, as_array, logprob_columns
from .declared import model_card_of
from .executor import EngineSpec, Executor, RankPlace, StepRows
from .extras_columns import extras_columns, tensors_of, with_arrays
from .protocols import PlanLane, Publishes
from .publisher import Publisher
from .step_lane import StepLane, StepLaneReader
from .synthetic import SYNTHETIC, SyntheticEngine
from .worker_loop import WorkerLoop

__all__ = [
    "SYNTHETIC",
    "EngineSpec",
    "Executor",
    "PlanLane",
    "Publisher",
    "Publishes",
    "RankPlace",
    "StepLane",
    "StepLaneReader",
    "StepLogprobs",
    "StepRows",
    "SyntheticEngine",
    "WorkerLoop",
    "as_array",
    "extras_columns",
    "logprob_columns",
    "model_card_of",
    "tensors_of",
    "with_arrays",
]

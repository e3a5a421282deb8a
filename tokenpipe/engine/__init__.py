"""Run the engine's process: it owns the Pipeline, schedules requests and supervises the workers."""

from .engine_loop import EngineLoop
from .scheduler import BoundRequest, Scheduler
from .scheduler_protocols import PlanSender, SchedulerPipe

__all__ = [
    "BoundRequest",
    "EngineLoop",
    "PlanSender",
    "Scheduler",
    "SchedulerPipe",
]

"""Run the engine's process: it owns the Pipeline, schedules requests and supervises the workers."""

from .scheduler import Scheduler

__all__ = [
    "Scheduler",
]

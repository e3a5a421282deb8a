"""Everything an engine on top of tokenpipe needs besides its model.

The process that owns the Pipeline (scheduler, workers under supervision), the loop of a worker,
the small interface of the model inside of it, and a synthetic one.
"""

from .health import Health, read_health
from .interface import Engine, EngineSpec, Place, Rows
from .scheduler import Scheduler
from .synthetic import SYNTHETIC, SyntheticEngine

__all__ = [
    "SYNTHETIC",
    "Engine",
    "EngineSpec",
    "Health",
    "Place",
    "Rows",
    "Scheduler",
    "SyntheticEngine",
    "read_health",
]

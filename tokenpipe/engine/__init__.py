"""Everything an engine on top of tokenpipe needs besides its model.

The process that owns the Pipeline (scheduler, workers under supervision), the loop of a worker,
the small interface of the model inside of it, and a synthetic one.
"""

from .scheduler import Scheduler

__all__ = ["Scheduler"]

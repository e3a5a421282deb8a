"""Hold one running pipeline's directory: its name, its locks, its health, its clean-up.

A role is alive while its process holds the role's lock. Only the owner of a file removes it.
"""

from .dropped import when_dropped
from .guard import ForkGuard, OwnerGuard, close_at_exit
from .health import HEALTH_S, Health, HealthWriter, read_health
from .instance import ENDPOINT_VARIABLE, Instance, Reservation
from .model_card import STANDARD_FIELDS, ModelCard, ModelCardReader, write_model_card
from .names import (
    command_lane,
    lane_name,
    output_lane,
    own_output_lane,
    report_lane,
    step_lane,
    submit_lane,
    worker_lane,
)
from .role_lock import RoleLock
from .runtime_dir import default_base
from .sweep import HEALTH_FILE, MODEL_CARD_FILE, Swept, sweep
from .upkeep import Upkeep

__all__ = [
    "ENDPOINT_VARIABLE",
    "HEALTH_FILE",
    "HEALTH_S",
    "MODEL_CARD_FILE",
    "STANDARD_FIELDS",
    "ForkGuard",
    "Health",
    "HealthWriter",
    "Instance",
    "ModelCard",
    "ModelCardReader",
    "OwnerGuard",
    "Reservation",
    "RoleLock",
    "Swept",
    "Upkeep",
    "close_at_exit",
    "command_lane",
    "default_base",
    "lane_name",
    "output_lane",
    "own_output_lane",
    "read_health",
    "report_lane",
    "step_lane",
    "submit_lane",
    "sweep",
    "when_dropped",
    "worker_lane",
    "write_model_card",
]

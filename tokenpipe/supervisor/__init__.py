"""Start processes, notice their deaths, restart or stop them. Knows no token.

A child is made by exec, writes to a log file of its own, and cannot outlive its supervisor's
process, however that ends.
"""

from .child import Child, ChildSpec, Died
from .kept_children import KeptChildren
from .restart_policy import GiveUp, Restart, RestartPolicy
from .supervisor import Supervisor

__all__ = [
    "Child",
    "ChildSpec",
    "Died",
    "GiveUp",
    "KeptChildren",
    "Restart",
    "RestartPolicy",
    "Supervisor",
]

"""Start child processes, notice their deaths, restart or stop them.

A child is started by exec and writes to a log file of its own. The kernel kills it when the
supervisor's process ends for any reason.
"""

from .child import Child, ChildSpec, Died
from .kept_children import KeptChildren
from .restart_policy import NoRestart, Restart, RestartPolicy
from .supervisor import Supervisor

__all__ = [
    "Child",
    "ChildSpec",
    "Died",
    "KeptChildren",
    "NoRestart",
    "Restart",
    "RestartPolicy",
    "Supervisor",
]

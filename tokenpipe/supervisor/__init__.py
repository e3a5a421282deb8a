"""Start processes, notice their deaths, stop them. Knows no token.

A child is made by exec, writes to a log file of its own, and cannot outlive its supervisor's
process, however that ends.
"""

from .budget import Budget
from .child import Child, ChildSpec, Died
from .supervisor import Supervisor

__all__ = ["Budget", "Child", "ChildSpec", "Died", "Supervisor"]

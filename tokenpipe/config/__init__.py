"""Read configuration strictly: types are never guessed, every error says file, line and key.

Knows no key of its own; `topology.py` declares them.
"""

from .model import FrozenConfig, Misfit
from .yamldoc import KeyPath, YamlDocument, load_yaml

__all__ = ["FrozenConfig", "KeyPath", "Misfit", "YamlDocument", "load_yaml"]

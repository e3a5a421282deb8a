"""Read configuration strictly: types are never guessed, every error says file, line and key.

Knows no key of its own; `topology.py` declares them.
"""

from .model import Accepts, FrozenConfig, Misfit, default
from .yamldoc import KeyPath, YamlDocument, load_yaml

__all__ = ["Accepts", "FrozenConfig", "KeyPath", "Misfit", "YamlDocument", "default", "load_yaml"]

"""Read configuration strictly: no type is guessed, and every error names file, line and key.

The room knows no key; `topology.py` declares the keys.
"""

from .frozen_config import Conflict, FrozenConfig
from .yamldoc import KeyPath, YamlDocument, load_yaml

__all__ = ["Conflict", "FrozenConfig", "KeyPath", "YamlDocument", "load_yaml"]

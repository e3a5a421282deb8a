"""Read YAML 1.2 into plain values, and keep the line of every key.

Duplicate keys, merge keys and other tags than the standard ones are refused. An alias inside its
own anchor is None. `on` and `yes` are strings, and `0o10` is 8. The caller checks the types.
"""

from __future__ import annotations

from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tokenpipe.errors import ConfigError

KeyPath = tuple[str | int, ...]
_TAG = "tag:yaml.org,2002:"
_TAGS = {_TAG + t for t in ("map", "seq", "null", "bool", "int", "float", "str", "timestamp")}


def load_yaml(text: str, name: str) -> YamlDocument:
    """Parse one document. Raises ConfigError if the text is not YAML."""
    yaml = YAML(typ="safe", pure=True)
    yaml.allow_duplicate_keys = True  # YamlDocument reports all of them at once
    try:
        root = yaml.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        raise ConfigError(f"{where}: not YAML: {error.problem or error.context}") from None
    except YAMLError as error:
        raise ConfigError(f"{name}: not YAML: {error}") from None
    return YamlDocument(name, root, yaml)


class YamlDocument:
    """One parsed text: `value` holds plain values, and each path in it has a line.

    `problems` has one line to print for each problem of the text itself, such as a duplicate key;
    `value` then has the first of two equal keys.
    """

    def __init__(self, name: str, root: Node | None, yaml: YAML) -> None:
        self.name = name
        self.problems: list[str] = []
        self._root = root
        self._yaml = yaml
        self._made: dict[int, Any] = {}
        self.value: Any = None if root is None else self._make(root, ())

    def where(self, path: KeyPath) -> str:
        """Return `file:line` of `path`."""
        return f"{self.name}:{self.line(path)}"

    def line(self, path: KeyPath) -> int:
        """Return the line of the key at `path`, or of its nearest parent that the text has."""
        node, line = self._root, 1
        for step in path:
            found = _child(node, step)
            if found is None:
                break
            node, line = found
        return line

    def _make(self, node: Node, path: KeyPath) -> Any:
        if id(node) in self._made:
            return self._made[id(node)]
        self._made[id(node)] = None  # an alias inside its own anchor reads this
        value: Any
        if node.tag not in _TAGS:
            self._problem(node, path, f"the tag {node.tag} is not allowed")
            value = None
        elif isinstance(node, MappingNode):
            value = self._mapping(node, path)
        elif isinstance(node, SequenceNode):
            value = [self._make(item, (*path, i)) for i, item in enumerate(node.value)]
        elif node.tag == _TAG + "timestamp":  # a date stays a string
            value = node.value
        else:
            value = self._scalar(node, path)
        self._made[id(node)] = value
        return value

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, ScalarNode) else None
            if key is None or key_node.tag != _TAG + "str":
                shown = "<<" if key == "<<" else key or "a list or mapping"
                self._problem(key_node, path, f"a key must be a plain word (got {shown})")
            elif key in made:
                self._problem(key_node, (*path, key), "the key is given twice")
            else:
                made[key] = self._make(value_node, (*path, key))
        return made

    def _scalar(self, node: Node, path: KeyPath) -> Any:
        try:
            return self._yaml.constructor.construct_object(node)
        except (YAMLError, ValueError) as error:
            self._problem(node, path, f"cannot be read: {error}")
            return None

    def _problem(self, node: Node, path: KeyPath, what: str) -> None:
        at = f"{self.name}:{node.start_mark.line + 1}"
        self.problems.append(f"{at}: {show_path(path) or 'document'}: {what}")


def show_path(path: KeyPath) -> str:
    """Return a path as text: `bounds.lane_bytes`, `eos_token_ids[1]`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _child(node: Node | None, step: str | int) -> tuple[Node, int] | None:
    """Return the node that `step` names below `node`, and its line."""
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if isinstance(key, ScalarNode) and key.value == step:
                return value, key.start_mark.line + 1
    elif isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
        item = node.value[step]
        return item, item.start_mark.line + 1
    return None

"""A message is for people: no code decides by its words, or cuts a fact out of it.

What code needs to know of an error stands in a field: its class, `error_code`, `FieldError.field`.
This test reads the package's source and follows messages through each function. Only `errors.py`
may look into one, and `logs.py`, which writes them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "tokenpipe"
MAY_READ = {"errors.py", "logs.py"}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name not in MAY_READ)

# Attributes and parameters that hold a message.
WORDS = {"error", "reason", "lost_reason", "message", "detail", "problem", "trouble"}
WORDS |= {"why", "no_table_reason", "failure", "strerror"}
# What looks into a text; and what lays one out for people, which may stand before a look.
READS = {"startswith", "endswith", "find", "rfind", "index", "rindex", "count", "replace"}
READS |= {"split", "rsplit", "partition", "rpartition", "removeprefix", "removesuffix"}
LAYS_OUT = {"strip", "lstrip", "rstrip", "splitlines", "lower", "casefold"}


class Function:
    """One function, and which of its names hold exceptions or messages."""

    def __init__(self, node: ast.AST) -> None:
        self.node = node
        self.exceptions = {
            inner.name
            for inner in ast.walk(node)
            if isinstance(inner, ast.ExceptHandler) and inner.name
        }
        self.messages: set[str] = set()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                kind = ast.unparse(arg.annotation) if arg.annotation else ""
                if arg.arg in WORDS and "str" in kind:
                    self.messages.add(arg.arg)
                if "Exception" in kind or "Error" in kind:
                    self.exceptions.add(arg.arg)
        before = -1
        while before != len(self.messages):  # until no assignment adds one
            before = len(self.messages)
            for inner in ast.walk(node):
                if isinstance(inner, ast.Assign | ast.NamedExpr) and self.is_message(inner.value):
                    targets = inner.targets if isinstance(inner, ast.Assign) else [inner.target]
                    self.messages |= {t.id for t in targets if isinstance(t, ast.Name)}

    def is_exception(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id in self.exceptions

    def is_message(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(name):
                return name in self.messages
            case ast.Attribute(value, "args"):
                return self.is_exception(value)
            case ast.Attribute(_, name):
                return name in WORDS
            case ast.BoolOp():
                return any(map(self.is_message, node.values))
            case ast.IfExp():
                return self.is_message(node.body) or self.is_message(node.orelse)
            case ast.JoinedStr():
                parts = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
                return any(self.is_message(part) or self.is_exception(part) for part in parts)
            case ast.BinOp():
                return self.is_message(node.left) or self.is_message(node.right)
            case ast.Subscript():
                return self.is_message(node.value)
            case ast.Call(ast.Name("str" | "repr" | "first_line"), [what]):
                return self.is_exception(what) or self.is_message(what)
            case ast.Call(ast.Attribute(value, name)):
                return name in READS | LAYS_OUT and self.is_message(value)
        return False

    def readings(self) -> Iterator[tuple[int, str]]:
        """Yield (line, source) of what looks into a message."""
        for node in ast.walk(self.node):
            match node:
                case ast.Call(ast.Attribute(value, name)) if name in READS:
                    found = self.is_message(value)
                case ast.Call(ast.Attribute(ast.Name("re"), _)):
                    found = any(map(self.is_message, node.args))
                case ast.Compare(left, operators, right):
                    texts = [left, *right]
                    words = any(isinstance(text, ast.Constant) and text.value for text in texts)
                    searched = any(isinstance(one, ast.In | ast.NotIn) for one in operators)
                    found = (words or searched) and any(map(self.is_message, texts))
                case ast.Subscript(value) if isinstance(node.ctx, ast.Load):
                    found = self.is_message(value)
                case ast.Match(subject):
                    found = self.is_message(subject)
                case _:
                    continue
            if found:
                yield node.lineno, ast.unparse(node)


def functions(tree: ast.Module) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function(node)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_code_reads_a_message(path: Path) -> None:
    for function in functions(ast.parse(path.read_text(encoding="utf-8"))):
        for line, source in function.readings():
            pytest.fail(f"{path.relative_to(PACKAGE)}:{line}: {source} reads a message")


@pytest.mark.parametrize(
    "body",
    [
        "if 'was lost' in output.error: pass",
        "if output.error.startswith('invalid: '): pass",
        "text = output.error or 'the request failed'\n first = text.split(':')[0]",
        "try: pass\n except ValueError as error: param = str(error).partition(':')[0]",
        "try: pass\n except ValueError as error:\n  said = f'{error}'\n  re.match('x', said)",
        "try: pass\n except ValueError as error: first = error.args[0]",
        "if event.reason == 'closed': pass",
        "first = event.reason.splitlines()[0]",
        "if (why := change.reason) and 'gone' in why: pass",
    ],
)
def test_a_reading_is_found(body: str) -> None:
    (function,) = functions(ast.parse(f"def f(output, event, change):\n {body}"))
    assert list(function.readings())


@pytest.mark.parametrize(
    "body",
    [
        "log(f'lost: {output.error}')",
        "if output.error is None or not output.error: pass",
        "try: pass\n except ValueError as error: raise KeyError(str(error)) from None",
        "if output.error_code == 4: pass",
        "names = path.split('/')",
        "lines = [f'  {line}' for line in output.error.splitlines()]",
    ],
)
def test_what_hands_a_message_on_is_not_found(body: str) -> None:
    (function,) = functions(ast.parse(f"def f(output, path):\n {body}"))
    assert not list(function.readings())

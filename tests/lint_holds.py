"""Find what C holds across a call into Python: `python -m tests.lint_holds`, part of `make check`.

A call into Python may run any code: a decoder, a reader, a finalizer of the garbage collector, a
signal handler. It may free what a pointer points to, and change what a number counts. This lint
reads csrc/py/ as text. For each call that may run Python code it finds the variables that were
taken from the state of an object before the call and are used after it:

- a pointer into an array or a struct of the pure half, or into the bytes of a Python object;
- a borrowed reference;
- a number that was read from a field.

A reason in a comment `holds NAME: ...`, in the function, allows one name. The files of GUARDED are
allowed as a whole, because an object refuses every call while one of its methods runs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

CSRC = Path(__file__).parent.parent / "csrc"
# Python code runs in these.
RUNS = (
    r"PyObject_(?:Call\w*|Vectorcall\w*|GetAttr\w*|SetAttr\w*|IsTrue|GetBuffer|RichCompare\w*|Str|Repr)"
    r"|PyNumber_\w+|PyLong_As\w+|PyArg_\w+|PySequence_\w+|PyIter_\w+|PyImport_\w+|PyErr_WriteUnraisable"
    r"|PyErr_SetObject|PyErr_Restore|PyDict_(?:SetItem|GetItem\w*)|PyBuffer_Release|PyContext_\w+"
    r"|PyObject_CallFinalizerFromDealloc"
)
# The last reference may go. Before Python 3.12, a new object may make the collector run finalizers.
FREES = (
    r"Py_(?:X?DECREF|CLEAR|X?SETREF)"
    r"|PyList_(?:New|Append|SetSlice)|PyTuple_(?:New|Pack)|PyDict_New|Py_BuildValue|tp_alloc"
)
SAFE = r"PySequence_Fast_GET\w+|PyErr_Clear"
GUARDED = ("table_binding.c", "table_commands_binding.c", "table_events_binding.c",
           "table_feed_binding.c", "text_binding.c")  # fmt: skip
# These run while the collector is off, and free only what they made: FREES does not count there.
UNCOLLECTED = {"item_binding.c": ("token_logprobs", "all_logprobs", "token_list", "fill_slots",
                                  "make_item", "fill")}  # fmt: skip

BEGIN = re.compile(r"^(?:static |TP_HOT |inline )*[\w ]+?\**\b(\w+)\(([^;{]*)\) \{$", re.MULTILINE)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
CALLED = re.compile(r"\b(\w+)\(")
FOREIGN = re.compile(r"foreign->(?:begin|copy|drop|step)\(|table->look\(")
POINTER = re.compile(
    r"\b(?:const )?(?:tp_(?:binding|slot|rank|client|event|note|extras|waiting|text|kept|piece)"
    r"|uint8_t|char|exchange) \*(\w+) = "
)
PARAMETER = re.compile(
    r"\b(?:const )?(?:tp_(?:binding|slot|rank|client|event|note|extras|waiting)) \*(\w+)"
)
BORROWED = re.compile(
    r"\bPyObject \*(\w+) = (?:Py(?:Tuple|List|Sequence_Fast)_GET_ITEM|PyDict_GetItem\w*|self->\w+;)"
)
NUMBER = re.compile(
    r"\b(?:uint32_t|uint64_t|size_t|Py_ssize_t|int) (\w+) = "
    r"(?:[^;,(]*->[^;(]*|\w+_GET_SIZE\([^;]*);"
)


class Function(NamedTuple):
    """A function of a file: its name, parameters, body, and the line where the body begins."""

    path: Path
    name: str
    parameters: str
    body: str
    line: int


class Finding(NamedTuple):
    """A variable that is held across a call."""

    where: str
    call: str
    held: str


def functions(path: Path) -> Iterator[Function]:
    """Yield the functions of a file. clang-format puts their last brace into column 0."""
    text = path.read_text()
    for match in BEGIN.finditer(text):
        body = text[match.end() : text.index("\n}", match.end())]
        yield Function(path, match[1], match[2], body, text.count("\n", 0, match.end()) + 1)


def blank(text: str) -> str:
    """Return the text with its comments as spaces, so that places stay the same."""
    return COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


@cache
def all_functions() -> tuple[Function, ...]:
    """Return the functions of csrc/."""
    return tuple(f for path in sorted(CSRC.rglob("*.[ch]")) for f in functions(path))


@cache
def that_run_python(names: str) -> frozenset[tuple[Path, str]]:
    """Return the functions of csrc/ that run Python code, themselves or in what they call."""
    direct = re.compile(rf"\b(?!{SAFE})(?:{names})\(")
    where: dict[str, list[Path]] = {}
    for function in all_functions():
        where.setdefault(function.name, []).append(function.path)
    calls: dict[tuple[Path, str], set[tuple[Path, str]]] = {}
    found = set()
    for path, name, _, text, _ in all_functions():
        body = blank(text)
        called = {*CALLED.findall(body)} & where.keys()
        calls[path, name] = {(_place(path, where[c]), c) for c in called}
        if direct.search(body) or FOREIGN.search(body):
            found.add((path, name))
    while more := {key for key, called in calls.items() if key not in found and called & found}:
        found |= more
    return frozenset(found)


def _place(path: Path, places: list[Path]) -> Path:
    """Return which function a call in a file means: that of the file comes first."""
    return path if path in places else places[0]


def own_calls(path: Path, names: str) -> str:
    """Return a pattern of the project's functions that run Python code if this file calls them."""
    running = that_run_python(names)
    mine = {f.name for f in all_functions() if f.path == path}
    return "|".join(sorted({n for p, n in running if p == path or n not in mine}))


def held_in(function: Function, calls: re.Pattern[str]) -> Iterator[Finding]:
    """Yield the variables that a function holds across its calls into Python."""
    body = blank(function.body)
    taken = [(match[1], 0) for match in PARAMETER.finditer(function.parameters)]
    for kind in (POINTER, BORROWED, NUMBER):
        taken += [(match[1], body.index(";", match.end() - 1)) for match in kind.finditer(body)]
    allowed = set(re.findall(r"holds (\w+):", function.body))
    for name, begin in taken:
        if name in allowed:
            continue
        for call in calls.finditer(body, begin):
            end = _end_of(body, call.end())
            use = re.compile(rf"(?<![\w.>]){name}\b(?! = )").search(body, end)
            fresh = re.compile(rf"(?<![\w.>]){name} = ").search(body, end)
            if use and not (fresh and fresh.start() < use.start()) and not _leaves(body, end, use):
                line = function.line + body.count("\n", 0, call.start())
                where = f"{function.path.name}:{line} {function.name}"
                yield Finding(where, call[0].rstrip("("), name)


def _end_of(body: str, at: int) -> int:
    """Return where the call's parentheses end; `at` is behind the first one."""
    depth = 1
    while depth and at < len(body):
        depth += {"(": 1, ")": -1}.get(body[at], 0)
        at += 1
    return at


def _leaves(body: str, end: int, use: re.Match[str]) -> bool:
    """Return whether the call stands in a block, or in a statement, that returns."""
    statement = body.rfind("\n", 0, end)
    begins = body[statement:end].lstrip()
    if begins.startswith("return ") and body.find(";", end) < use.start():
        return True
    block = re.compile(r"\n( *)\}").search(body, end)
    inside = block is not None and block.start() < use.start()
    return inside and "return" in body[end : block.start()] if block else False


def findings() -> list[Finding]:
    """Return all findings in csrc/py/."""
    found: list[Finding] = []
    for function in all_functions():
        path = function.path
        if path.parent.name != "py" or path.suffix != ".c" or path.name in GUARDED:
            continue
        collected = function.name not in UNCOLLECTED.get(path.name, ())
        names = f"{RUNS}|{FREES}" if collected else RUNS
        calls = re.compile(rf"\b(?!{SAFE})(?:{names}|{own_calls(path, names)})\(")
        found += held_in(function, calls)
    return found


def unguarded_methods() -> list[str]:
    """Return the methods of Table and Text that may run while another one does."""
    found = []
    for name in ("table_binding.c", "text_binding.c"):
        text = (CSRC / "py" / name).read_text()
        methods = re.findall(r'\{"\w+",\s+(\w+),\s+METH_', text)
        found += [f"{name}: {method}" for method in methods if not method.startswith("guarded_")]
    return found


def main() -> int:
    """Print the findings, and return 0 if there are none."""
    held, unguarded = findings(), unguarded_methods()
    for finding in held:
        print(
            f"csrc/py/{finding.where}: {finding.call}() may run Python code; {finding.held} is held"
        )
    for method in unguarded:
        print(f"csrc/py/{method} is not guarded")
    if not held and not unguarded:
        print("csrc/py: nothing is held across a call into Python")
    return int(bool(held or unguarded))


if __name__ == "__main__":
    sys.exit(main())

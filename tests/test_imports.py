"""The house plan, enforced. Reads the source as text and imports none of it.

A dot means the same room, a full name means another room, and a room is entered by its door (its
`__init__`). Imports stand at the top of a file; nothing goes round in a circle.
"""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tokenpipe"
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))

LANES = {"types", "extras", "errors", "wire", "instance", "transport", "topology", "_core"}
CHILD = {"logs", "notify"}  # what a role's own process needs besides
MAY_ENTER = {
    "accepts": set(),
    "errors": set(),
    "types": {"_core", "accepts", "errors"},
    "extras": set(),
    "events": {"types"},
    "logs": {"errors"},
    "notify": {"errors"},
    "config": {"errors"},
    "topology": {"accepts", "errors", "types", "config"},
    "wire": {"types", "extras", "errors", "_core"},
    "instance": {"errors"},
    "layout": {"topology", "instance"},
    "transport": {"errors", "instance", "_core"},
    "postprocess": {"types", "errors", "_core"},
    # instance, logs, notify, topology and transport are for its service alone: see CORE
    "processor": (LANES - {"extras"}) | CHILD | {"postprocess"},
    "worker": LANES | CHILD,
    "runners": {"types", "extras", "errors", "wire", "topology", "worker", "_core"},
    "client": LANES,
    "supervisor": {"errors", "topology", "logs", "notify"},
    "pipeline": LANES
    | {"events", "logs", "processor", "postprocess", "supervisor", "worker", "layout"},
    "engine": LANES | CHILD | {"events", "pipeline", "supervisor", "worker"},
    "api": CHILD
    | {"types", "errors", "topology", "instance", "postprocess", "client", "supervisor"},
    "serve": CHILD
    | {"errors", "topology", "instance", "layout", "supervisor", "worker", "engine", "api"},
    "bench": LANES
    | CHILD
    | {"events", "postprocess", "client", "worker", "supervisor", "pipeline", "engine"},
    "cli": {
        "",
        "errors",
        "topology",
        "instance",
        "layout",
        "postprocess",
        "worker",
        "serve",
    },
    "__main__": {"cli", "errors"},
    "__init__": {
        "client",
        "errors",
        "events",
        "extras",
        "instance",
        "pipeline",
        "runners",
        "topology",
        "types",
        "wire",
        "worker",
    },
}
# A name of another package may be imported only in these rooms or files; [] is nowhere.
ONLY_IN = {
    "paddle": [],  # runners/framework.py loads it by name, when a runner is made
    "fastapi": ["api"],
    "starlette": ["api"],
    "uvicorn": ["api"],
    "uvicorn_worker": ["api"],
    "gunicorn": ["api"],
    "jinja2": ["api"],
    "tokenizers": ["postprocess"],
    "subprocess": ["supervisor"],
    "zmq": ["transport", "bench/chaos_faults.py"],  # it plays a peer that keeps no rule
    "msgpack": ["wire", "transport"],
    "pydantic": ["config", "topology.py", "api"],  # FastAPI speaks it
    "ruamel": ["config"],
    "typer": ["cli.py", "bench"],
    "rich": ["cli.py", "bench"],
    "pickle": [],
    "marshal": [],
    "multiprocessing": [],
    "torch": [],
}
# No clock, socket, log or process: these give the same answer to the same calls, always.
PURE = {"time", "datetime", "socket", "select", "selectors", "logging", "asyncio", "threading"}
PURE |= {"os", "random", "secrets", "subprocess", "signal"}
CORE = {
    "types/": set[str](),
    "events.py": set[str](),
    "extras.py": set[str](),
    "errors.py": set[str](),
    "wire/": set[str](),
    "postprocess/": set[str](),
    "client/client_core.py": {"transport", "instance"},
    "processor/": {"transport", "instance", "topology", "logs", "notify"},
}
MAY_STILL = {"client/client_core.py": {"asyncio"}}  # the Future that a consumer is parked on
SHELLS = {
    f"processor/{name}.py"
    for name in (
        "service",
        "rank_lanes",
        "client_lane",
        "listener",
        "anomaly_log",
        "journal",
        "lives",
        "__main__",
    )
}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def home_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[tuple[int, int, str]]:
    """Yield (line, dots, module) of every import; `from tokenpipe import x` is tokenpipe.x."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, 0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "tokenpipe":
            yield from ((node.lineno, 0, f"tokenpipe.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is None:
            yield from ((node.lineno, node.level, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.level, str(node.module)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


each_module = pytest.mark.parametrize("path", MODULES, ids=name_of)


@each_module
def test_enters_only_the_rooms_it_may_and_by_the_door(path: Path) -> None:
    home = home_of(path)
    assert home in MAY_ENTER, f"{home}: a room that is not in the house plan"
    for line, dots, name in imports(parsed(path)):
        at = f"{name_of(path)}:{line}"
        depth = len(path.relative_to(PACKAGE).parts) - 1
        assert dots <= 1 and (dots == 0 or depth == 1), f"{at}: a dot never leaves the room"
        top, *inner = name.split(".")
        if dots or top != "tokenpipe":
            continue
        room = inner[0] if inner else ""
        assert room != home or home == "__init__", f"{at}: say it with a dot"
        assert room in MAY_ENTER[home], f"{at}: {home} may not enter {room or 'tokenpipe'}"
        assert len(inner) <= 1, f"{at}: enter {room} by its door"


@each_module
def test_uses_foreign_packages_only_where_they_belong(path: Path) -> None:
    for line, dots, name in imports(parsed(path)):
        allowed = ONLY_IN.get(name.split(".")[0]) if not dots else None
        inside = path.relative_to(PACKAGE)
        if allowed is not None:
            assert {inside.parts[0], str(inside)} & set(allowed), (
                f"{name_of(path)}:{line}: {name} does not belong here"
            )


@each_module
def test_core_has_no_clock_socket_or_log(path: Path) -> None:
    name = name_of(path)
    rules = [rule for part, rule in CORE.items() if name == part or name.startswith(part)]
    if not rules or name in SHELLS:
        return
    for line, dots, module in imports(parsed(path)):
        top, *inner = module.split(".")
        pure = dots or top not in PURE - MAY_STILL.get(name, set())
        assert pure, f"{name}:{line}: {module} in a file that must be pure"
        if top == "tokenpipe" and inner:
            assert inner[0] not in rules[0], f"{name}:{line}: only its shell may use {inner[0]}"


@each_module
def test_imports_stand_at_the_top(path: Path) -> None:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for line, _, name in imports(node):
                pytest.fail(f"{name_of(path)}:{line}: {name} is imported inside of a function")


def test_roles_do_not_know_one_another() -> None:
    for one, others in {
        "worker": {"client", "processor", "api"},
        "client": {"worker", "processor", "runners"},
        "processor": {"worker", "client", "runners"},
        "api": {"worker", "processor", "engine", "pipeline"},
    }.items():
        assert not MAY_ENTER[one] & others


def test_no_module_needs_itself() -> None:
    known = {name_of(path).removesuffix(".py").removesuffix("/__init__"): path for path in MODULES}
    graph: dict[str, set[str]] = {}
    for name, path in known.items():
        needs = graph.setdefault(name, set())
        for _, dots, module in imports(runtime_part(parsed(path))):
            room = path.relative_to(PACKAGE).parent.as_posix()
            inner = module.replace(".", "/") if dots else module.removeprefix("tokenpipe.")
            target = f"{room}/{inner}".removeprefix("./").removesuffix("/") if dots else inner
            if not dots and module.split(".")[0] == "tokenpipe" and target not in {*known, "_core"}:
                target = "__init__"  # the package itself, or a name that only it has
            if (dots or module.split(".")[0] == "tokenpipe") and target in known:
                needs.add(target)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"imports go round: {' -> '.join(error.args[1])}")


def runtime_part(tree: ast.Module) -> ast.Module:
    """Return the tree without what stands under `if TYPE_CHECKING:`."""
    kept = [node for node in tree.body if "TYPE_CHECKING" not in ast.unparse(node).split("\n")[0]]
    return ast.Module(
        [node for node in kept if isinstance(node, ast.Import | ast.ImportFrom | ast.If)], []
    )


def test_modules_are_loaded_by_name_in_few_files() -> None:
    by_name = {
        "runners/framework.py",
        "worker/executor.py",
        "api/start.py",
        "postprocess/tokenizer_file.py",
    }
    for path in MODULES:
        for line, _, name in imports(parsed(path)):
            allowed = name != "importlib" or name_of(path) in by_name
            assert allowed, f"{name_of(path)}:{line}: importlib"


def test_processes_are_made_by_exec_only() -> None:
    for path in MODULES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Attribute) and node.attr in {"fork", "forkpty", "system"}:
                pytest.fail(f"{name_of(path)}:{node.lineno}: os.{node.attr}")

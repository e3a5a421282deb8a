"""The lint of calls into Python finds each kind of value that is held, and csrc/ has none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.lint_holds import FREES, RUNS, Function, findings, held_in, unguarded_methods

BOUND = "\n    tp_binding *b = find(t, h);"
CALLS = re.compile(rf"\b(?:{RUNS}|{FREES})\(")


def held(body: str, parameters: str = "") -> list[tuple[str, str]]:
    function = Function(Path("x.c"), "f", parameters, body, 1)
    return [(finding.call, finding.held) for finding in held_in(function, CALLS)]


@pytest.mark.case("F18")
def test_nothing_is_held_across_a_call_into_python() -> None:
    assert findings() == []
    assert unguarded_methods() == []


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("\n    tp_binding *b = find(t, h);\n    PyObject_IsTrue(x);\n    b->total = 1;", "b"),
        ("\n    const uint8_t *p = data_of(x);\n    Py_DECREF(x);\n    return *p;", "p"),
        ("\n    PyObject *y = PyList_GET_ITEM(x, 0);\n    PyList_New(3);\n    use(y);", "y"),
        ("\n    PyObject *y = self->next;\n    Py_CLEAR(self->last);\n    use(y);", "y"),
        ("\n    uint32_t n = s->len;\n    PyArg_ParseTuple(a, b);\n    use(n);", "n"),
        ("\n    size_t n = PyList_GET_SIZE(x);\n    PyNumber_Index(y);\n    use(n);", "n"),
    ],
)
def test_finds_what_is_held(body: str, name: str) -> None:
    assert [found for _, found in held(body)] == [name]


def test_finds_a_parameter_that_is_held() -> None:
    assert held("\n    PyObject_Str(x);\n    b->total = 1;", "tp_binding *b") == [
        ("PyObject_Str", "b")
    ]


@pytest.mark.parametrize(
    "body",
    [
        "\n    PyObject_IsTrue(x);\n    tp_binding *b = find(t, h);\n    use(b);",
        "\n    tp_binding *b = find(t, h);\n    use(b);\n    PyObject_IsTrue(x);",
        BOUND + "\n    PyObject_IsTrue(x);\n    b = find(t, h);\n    use(b);",
        BOUND + "\n    if (bad) {\n        PyObject_Str(x);\n        return 0;\n    }\n    use(b);",
        "\n    uint32_t n = s->len; /* holds n: why */\n    PyObject_Str(x);\n    use(n);",
        "\n    PyObject *y = Py_NewRef(self->next);\n    PyList_New(3);\n    use(y);",
        "\n    uint32_t n = s->len;\n    /* PyObject_Str(x) */\n    use(n);",
    ],
)
def test_leaves_what_is_not_held(body: str) -> None:
    assert held(body) == []

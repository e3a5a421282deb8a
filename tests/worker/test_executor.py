"""Which executor a worker runs: a module, its factory, and what the factory is given."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tokenpipe.errors import ConfigError
from tokenpipe.topology import Topology
from tokenpipe.wire import StepBind
from tokenpipe.worker import EngineSpec, RankPlace


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nothing", "must be module:factory"),
        (":x", "must be module:factory"),
        ("no_such_module:x", "no module no_such_module"),
        ("tokenpipe.no_such:x", r"no module tokenpipe\.no_such"),
        ("tokenpipe.worker:Nothing", "tokenpipe.worker has no Nothing"),
        ("tokenpipe.worker:SYNTHETIC", "is a str"),
    ],
)
def test_target_that_is_no_factory_is_refused(target: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        EngineSpec(target).factory()


def test_factory_gets_place_and_arguments() -> None:
    spec = EngineSpec("tokenpipe.worker:SyntheticEngine", {"tokens_per_row": 2})
    engine = spec.make(RankPlace(Topology(), 0, 0))
    engine.admit(StepBind(1, 1, 0, (1, 2), max_tokens=9))
    rows = engine.step()
    assert rows is not None and len(rows.tokens) == 2


def test_a_factory_may_be_an_attribute_of_a_class() -> None:
    made: object = EngineSpec("tokenpipe.topology:Topology.loads").factory()("clients: 3")
    assert made == Topology(clients=3)


def test_what_a_module_raises_itself_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_engine.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        EngineSpec("broken_engine:make").factory()
    assert "broken_engine" not in sys.modules

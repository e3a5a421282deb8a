"""A value that no option gives comes from the topology file, or from the bench's defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenpipe.bench.options import Options
from tokenpipe.bench.oracle import VOCAB_SIZE
from tokenpipe.errors import ConfigError

FILE = """
data_parallel_size: 3
tensor_parallel_size: 1
slots_per_rank: 17
vocab_size: 5000
clients: 4
processors: {count: 3}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "t.yaml"
    path.write_text(FILE)
    return path


def shape(options: Options) -> tuple[int, int, int, int | None, int, int]:
    t = options.make_topology()
    return (
        t.data_parallel_size,
        t.tensor_parallel_size,
        t.slots_per_rank,
        t.vocab_size,
        t.clients,
        options.client_count(),
    )


def test_without_a_file_the_bench_has_its_own_defaults() -> None:
    assert shape(Options()) == (2, 2, 64, VOCAB_SIZE, 8, 2)


def test_a_file_is_used_without_change(file: Path) -> None:
    options = Options(topology=file)
    assert shape(options) == (3, 1, 17, 5000, 4, 4)
    assert options.make_topology().processor_count == 3


def test_an_empty_file_means_the_topologys_defaults_and_a_few_clients(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")
    assert shape(Options(topology=tmp_path / "empty.yaml")) == (1, 1, 256, None, 8, 2)


def test_an_option_overrides_the_file(file: Path) -> None:
    options = Options(topology=file, dp=2, tp=2, batch=9, clients=5, processors=1)
    assert shape(options) == (2, 2, 9, 5000, 5, 5)
    assert options.make_topology().processor_count == 1
    assert shape(Options(topology=file, clients=1)) == (3, 1, 17, 5000, 4, 1)


def test_the_report_has_the_values_of_the_topology(file: Path) -> None:
    options = Options(topology=file, seed=5)
    values = options.as_dict(options.make_topology())
    assert (values["dp"], values["tp"], values["batch"], values["clients"]) == (3, 1, 17, 4)
    assert (values["seed"], values["topology"]) == (5, str(file))


def test_impossible_options_are_refused_before_anything_starts(file: Path) -> None:
    with pytest.raises(ConfigError, match="columns or streams"):
        Options(consume="rows")
    with pytest.raises(ConfigError, match="needs steps"):
        Options(discard=True)
    with pytest.raises(ConfigError, match="more processors"):
        Options(topology=file, dp=2, processors=3).make_topology()

"""What a worker or an engine says of a request that it does not serve, up to its caller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.test_text_params import Asking, Served
from tokenpipe import (
    ErrorCode,
    Finished,
    FinishReason,
    ModelCard,
    Pipeline,
    Request,
    RequestOutput,
    RowExtras,
    RowStatus,
    SamplingParams,
    Submitted,
    Topology,
)
from tokenpipe.instance import ModelCardReader

TEXT = "guided_grammar: größer als 64 KiB"
FIELD = "guided_grammar"


@pytest.fixture(params=["process", "inline"])
def served(request: pytest.FixtureRequest, runtime_dir: Path) -> Iterator[Served]:
    topology = Topology(runtime_dir=runtime_dir, processors={"mode": request.param})
    with Pipeline(topology) as pipe:
        served = Served(pipe)
        yield served
        served.close()


def ask(served: Served) -> tuple[Asking, Request]:
    asking = Asking(served.pipe.endpoint, SamplingParams(), [1, 2])
    return asking, served.until(Submitted).request


def the_end_of(served: Served, asking: Asking) -> RequestOutput:
    served.join(asking)
    (output,) = asking.outputs
    assert output.finish_reason is FinishReason.ERROR and output.token_ids == []
    return output


def test_a_refused_row_reaches_engine_and_client_with_its_field(served: Served) -> None:
    asking, request = ask(served)
    handle = served.bind(request, 0)
    extras = {0: RowExtras(error=TEXT, error_field=FIELD)}
    served.pub.publish(
        1, [handle], [], counts=[0], status=[RowStatus.REFUSED], drained=[handle], extras=extras
    )
    finished = served.until(Finished)
    assert finished == Finished(
        request, handle, FinishReason.ERROR, 0, None, TEXT, ErrorCode.INVALID, FIELD
    )
    output = the_end_of(served, asking)
    assert (output.error, output.error_code, output.error_field) == (TEXT, ErrorCode.INVALID, FIELD)


def test_an_engine_rejects_with_a_field(served: Served) -> None:
    asking, request = ask(served)
    served.pipe.reject(request, TEXT, field=FIELD)
    output = the_end_of(served, asking)
    assert (output.error, output.error_code, output.error_field) == (TEXT, ErrorCode.INVALID, FIELD)
    asking, request = ask(served)
    served.pipe.reject(request, TEXT, field="f" * 300)  # no name of a field is that long
    output = the_end_of(served, asking)
    assert (output.error, output.error_field) == (TEXT, None)


def test_api_servers_read_the_model_card_of_a_pipeline(runtime_dir: Path) -> None:
    topology = Topology(runtime_dir=runtime_dir, processors={"mode": "inline"})
    with Pipeline(topology, model_card=None) as pipe:
        reader = ModelCardReader(Path(pipe.endpoint))
        assert reader.read() is None
        pipe.set_model_card(ModelCard(("priority",), 100))
        assert reader.read() == ModelCard(("priority",), 100)
    assert reader.read() is None
    with Pipeline(topology) as pipe:
        assert ModelCardReader(Path(pipe.endpoint)).read() == ModelCard()

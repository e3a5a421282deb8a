"""The built-in lengths are usable as they are."""

from statistics import median

from tokenpipe.bench.azure_lengths import CREDIT, LENGTHS
from tokenpipe.bench.trace_files import MAX_TOKENS


def test_each_request_has_a_prompt_and_output() -> None:
    assert len(LENGTHS) == 64
    assert all(0 < prompt <= MAX_TOKENS and 0 < output for prompt, output in LENGTHS)


def test_they_are_those_of_a_conversation() -> None:
    assert 100 < median(output for _, output in LENGTHS) < 200
    assert median(prompt for prompt, _ in LENGTHS) > median(output for _, output in LENGTHS)


def test_the_licence_and_the_source_are_named() -> None:
    assert "CC-BY 4.0" in CREDIT and "Azure" in CREDIT

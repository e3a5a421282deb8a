"""Both forms are read. An error names the file, the line and the column."""

from pathlib import Path

import pytest

from tokenpipe.bench.trace_files import load
from tokenpipe.bench.traces import Arrival
from tokenpipe.errors import ConfigError

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:15:46.6805900,374,44\r\n"
    "2023-11-16 18:16:50.9951690,396,109\r\n"
)
MOONCAKE = "timestamp_ms,input_length,output_length\n0,6758,500\n27500,7322,490\n"


def written(path: Path, text: str | bytes) -> Path:
    file = path / "trace.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def test_reads_azure(tmp_path: Path) -> None:
    trace = load(written(tmp_path, AZURE))
    first, second = trace.arrivals
    assert first == Arrival(0.0, 374, 44)
    assert second.at_s == pytest.approx(64.314579, abs=1e-6)
    assert second[1:] == (396, 109)
    assert "Azure" in trace.credit and trace.output_tokens == 153


def test_reads_mooncake(tmp_path: Path) -> None:
    trace = load(written(tmp_path, MOONCAKE))
    assert trace.arrivals == (Arrival(0.0, 6758, 500), Arrival(27.5, 7322, 490))
    assert "Mooncake" in trace.credit


def test_other_columns_order_blank_lines_and_a_byte_order_mark_do_not_matter(
    tmp_path: Path,
) -> None:
    text = "\ufeffoutput_length,model,timestamp_ms,input_length\n\n500,m,0,6758\n\n"
    assert load(written(tmp_path, text)).arrivals == (Arrival(0.0, 6758, 500),)


def test_arrivals_are_sorted_and_begin_at_second_0(tmp_path: Path) -> None:
    trace = load(written(tmp_path, MOONCAKE.splitlines()[0] + "\n9000,1,2\n5000,3,4\n"))
    assert trace.arrivals == (Arrival(0.0, 3, 4), Arrival(4.0, 1, 2))


def test_requests_without_output_are_left_out_and_counted(tmp_path: Path) -> None:
    trace = load(written(tmp_path, MOONCAKE + "30000,5,0\n"))
    assert len(trace.arrivals) == 2 and trace.skipped == 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        (b"\xff\xfe", "not UTF-8"),
        ("a,b,c\n1,2,3\n", ":1: no trace header"),
        (MOONCAKE.splitlines()[0], "no requests"),
        (MOONCAKE + "1,2\n", ":4: 2 columns"),
        (MOONCAKE + "x,2,3\n", ":4: timestamp_ms: 'x'"),
        (MOONCAKE + "1,-2,3\n", ":4: input_length: '-2'"),
        (MOONCAKE + "1,2,3.5\n", ":4: output_length: '3.5'"),
        (MOONCAKE + "1,2,99999999999\n", ":4: output_length"),
        (MOONCAKE + "nan,2,3\n", ":4: timestamp_ms: 'nan'"),
        (AZURE + "yesterday,2,3\r\n", ":4: TIMESTAMP: 'yesterday'"),
        (AZURE + "2023-11-16 18:15:46.x,2,3\r\n", ":4: TIMESTAMP"),
    ],
)
def test_an_error_says_what_is_wrong_and_where(
    tmp_path: Path, text: str | bytes, complaint: str
) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError) as error:
        load(file)
    assert str(file) in str(error.value) and complaint in str(error.value)


def test_a_missing_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "nothing.csv")

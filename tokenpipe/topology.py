"""Say, once, what one instance is made of: a frozen value from YAML or from Python.

Whatever is wrong with it is said before anything starts, all of it at once, as a ConfigError whose
lines read `file:line: key.path: what (got ...)`. An empty file is a valid topology.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from typing_extensions import Self

from tokenpipe.accepts import Accepts, default
from tokenpipe.config import Conflict, FrozenConfig
from tokenpipe.errors import ConfigError
from tokenpipe.types import MAX_DP, MAX_SLOTS

_MIB = 1 << 20


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _path(value: Any) -> Any:
    if isinstance(value, str | Path) and "\0" in str(value):
        raise ValueError("must be a path without a NUL")
    return Path(value) if isinstance(value, str) and value else value


Count = Annotated[int, Field(ge=1, le=1024)]
# A description says what its number counts, for who gave something else.
Bytes = Annotated[int, Field(ge=1024, le=1 << 40, description="bytes as a plain integer")]
Seconds = Annotated[
    float, Field(gt=0, le=86_400, allow_inf_nan=False, description="seconds as a number")
]
TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]
TokenIds = Annotated[tuple[TokenId, ...], BeforeValidator(_tuple)]
Directory = Accepts[Annotated[Path, BeforeValidator(_path)] | None, str]
FilePath = Accepts[Annotated[Path, BeforeValidator(_path)] | None, str]
# Anything that can be one file name; how long a socket's path may get is for the transport to say.
Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^./\pC][^/\pC]*$")]


class Processors(FrozenConfig, frozen=True):
    """How rows are turned into output: in processes of their own, or inline in the engine's."""

    mode: Literal["process", "inline"] = "process"
    count: Count | None = None  # None: one per DP rank, at most the cores


class Bounds(FrozenConfig, frozen=True):
    """Most bytes that each queue may hold."""

    lane_bytes: Bytes = 64 * _MIB  # unacknowledged frames of one lane, at their sender
    max_frame_bytes: Bytes = 16 * _MIB  # one frame; a larger one is refused by either end
    client_window_bytes: Bytes = 4 * _MIB  # unacknowledged output frames of one client
    merge_bytes: Bytes = 64 * _MIB  # unsent output of one client, past its window
    stream_bytes: Bytes = 4 * _MIB  # output of one request that its consumer has not taken
    park_bytes: Bytes = 4 * _MIB  # rows of one rank that came before their bind


class Timeouts(FrozenConfig, frozen=True):
    """Longest waits, in seconds."""

    startup_s: Seconds = 30.0  # a child, a peer: from start to its welcome
    publish_s: Seconds = 5.0  # publish() at a full lane, backpressure "block"
    drained_s: Seconds = 10.0  # a drained row, while its rank shows life
    park_s: Seconds = 5.0  # a bind whose rows came first
    gap_s: Seconds = 1.0  # frames that are to be sent again
    close_s: Seconds = 5.0  # the end/ack exchange of a lane, and a child's exit
    client_ahead_s: Seconds = 5.0  # rows that a client waits for, having later ones
    stuck_s: Seconds = 10.0  # a process of `serve` without a sign of life is reported


class Policies(FrozenConfig, frozen=True):
    """What follows where a process dies after its start, or falls silent.

    `fail` ends the pipeline, or the server, with an error. `engine`, `worker`, `api` and
    `lost_rank` are for `serve`.
    """

    engine: Literal["restart", "fail"] = "fail"
    processor: Literal["restart", "fail"] = "restart"
    worker: Literal["restart", "fail"] = "restart"
    api: Literal["restart", "fail"] = "restart"
    restarts: Annotated[int, Field(ge=1, le=1_000_000)] = 3  # of one process, within
    within_s: Seconds = 60.0
    on_stuck: Literal["report", "kill"] = "report"  # a process silent for timeouts.stuck_s
    lost_rank: Literal["move", "end"] = "move"  # its requests go on at another, or end


class Api(FrozenConfig, frozen=True):
    """The HTTP server of `serve`."""

    host: Annotated[str, Field(min_length=1, max_length=255)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8000  # 0: any that is free, said in the log
    workers: Annotated[int, Field(ge=1, le=256)] = 1  # 1: no fork at all
    timeout_graceful_shutdown: Seconds = 30.0  # for open streams, from the first signal
    timeout_send: Seconds = 60.0  # a reader that took nothing for so long is cut off
    model: Annotated[str, Field(min_length=1, max_length=255)] = "tokenpipe"  # its name in answers
    chat_template: FilePath = default(None)  # None: the one beside the tokenizer
    max_body_bytes: Bytes = 16 * _MIB
    backlog: Annotated[int, Field(ge=1, le=65_535)] = 2048
    access_log: bool = False


class Log(FrozenConfig, frozen=True):
    """What the processes' own log lines look like."""

    format: Literal["human", "json"] = "human"
    level: Literal["debug", "info", "warning", "error"] = "info"


class Topology(FrozenConfig, frozen=True):
    """One instance: its ranks, processors, clients, bounds and deadlines.

    Construction raises ConfigError for unknown keys, wrong types and impossible combinations.
    """

    name: Name | None = None  # None: a random one; a living instance's is refused
    data_parallel_size: Annotated[int, Field(ge=1, le=MAX_DP)] = 1
    tensor_parallel_size: Count = 1
    tp_policy: Literal["leader", "verify"] = "leader"
    platform: Literal["cpu", "gpu", "xpu", "metax_gpu"] = "cpu"  # of the workers
    slots_per_rank: Annotated[int, Field(ge=1, le=MAX_SLOTS)] = 256
    vocab_size: Annotated[int, Field(ge=1, le=1 << 31)] | None = None  # None: any int32 >= 0
    tokenizer: FilePath = default(None)  # a tokenizer.json; None: requests have no text
    eos_token_ids: Accepts[TokenIds, list[int]] = default(())
    processors: Accepts[Processors, Mapping[str, Any]] = default(Processors())
    clients: Count = 8  # at most so many at a time
    max_queued_requests: Annotated[int, Field(ge=0, le=1_000_000)] = 8192  # `serve`: without a slot
    backpressure: Literal["block", "fail"] = "block"
    bounds: Accepts[Bounds, Mapping[str, Any]] = default(Bounds())
    timeouts: Accepts[Timeouts, Mapping[str, Any]] = default(Timeouts())
    api: Accepts[Api, Mapping[str, Any]] = default(Api())
    policies: Accepts[Policies, Mapping[str, Any]] = default(Policies())
    log: Accepts[Log, Mapping[str, Any]] = default(Log())
    runtime_dir: Directory = default(None)  # where the instance's private directory is made
    log_dir: Directory = default(None)  # None: inside the instance's directory, gone with it

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a YAML file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise ConfigError(f"{os.fspath(path)}: cannot be read: {reason}") from None
        return cls.loads(text, os.fspath(path))

    @classmethod
    def from_json_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make the topology that `to_json_dict` wrote."""
        return cls.checked(dict(values))

    def to_json_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: all keys, the number of processors filled in."""
        values: dict[str, Any] = self.model_dump(mode="json")
        values["processors"]["count"] = self.processor_count
        return values

    def replaced(self, **changes: Any) -> Self:
        """Return a copy with some keys changed, checked again; a section may be given in part.

        This is how a command line beats a file: `t.replaced(clients=2, processors={"count": 1})`.
        """
        values = self.model_dump(exclude_unset=True)
        for key, value in changes.items():
            if isinstance(value, Mapping):
                value = {**values.get(key, {}), **value}
            values[key] = value
        return type(self)(**values)

    @property
    def processor_count(self) -> int:
        """Processors of the pool: as given, else one per DP rank, at most the cores."""
        if self.processors.mode == "inline":
            return 1
        return self.processors.count or min(self.data_parallel_size, _cores())

    def processor_of(self, dp_rank: int) -> int:
        """Return the one processor that owns a DP rank."""
        if not 0 <= dp_rank < self.data_parallel_size:
            raise ValueError(f"there is no DP rank {dp_rank} of {self.data_parallel_size}")
        return dp_rank * self.processor_count // self.data_parallel_size

    def ranks_of(self, processor: int) -> tuple[int, ...]:
        """Return the DP ranks that a processor owns: at least one, side by side."""
        ranks = range(self.data_parallel_size)
        return tuple(dp for dp in ranks if self.processor_of(dp) == processor)

    @property
    def workers(self) -> tuple[tuple[int, int], ...]:
        """All (DP rank, TP rank), in order."""
        tp_ranks = range(self.tensor_parallel_size)
        return tuple((dp, tp) for dp in range(self.data_parallel_size) for tp in tp_ranks)

    def conflicts(self) -> Iterable[Conflict]:
        """Yield the values that do not fit one another."""
        count, dp, bounds = self.processors.count, self.data_parallel_size, self.bounds
        at, mode, ranks = ("processors", "count"), ("processors", "mode"), ("data_parallel_size",)
        if self.processors.mode == "inline" and count not in (None, 1):
            yield Conflict(at, f"inline has exactly one processor (got {count})", (mode,))
        elif count is not None and count > dp:
            what = f"more processors than the {dp} DP rank(s) (got {count})"
            yield Conflict(at, what, (mode, ranks))
        if self.api.workers > self.clients:
            what = f"more than clients {self.clients}: each is one (got {self.api.workers})"
            yield Conflict(("api", "workers"), what, (("clients",),))
        for i, token in enumerate(self.eos_token_ids):
            if self.vocab_size is not None and token >= self.vocab_size:
                what = f"outside of vocab_size {self.vocab_size} (got {token})"
                yield Conflict(("eos_token_ids", i), what, (("vocab_size",),))
        if bounds.max_frame_bytes > bounds.lane_bytes:
            what = f"larger than bounds.lane_bytes {bounds.lane_bytes}"
            what = f"{what} (got {bounds.max_frame_bytes})"
            yield Conflict(("bounds", "max_frame_bytes"), what, (("bounds", "lane_bytes"),))


@functools.cache
def _cores() -> int:
    # Read once: a process that pins itself later must not count its processors anew.
    return len(os.sched_getaffinity(0))

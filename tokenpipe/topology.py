"""The configuration of one instance: a frozen value from YAML or from Python.

A ConfigError lists all problems at once, before anything starts. Its lines have the form
`file:line: key.path: problem (got ...)`. An empty file is a valid topology.
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
# The description is the unit. An error shows it if the value is not a number.
Bytes = Annotated[int, Field(ge=1024, le=1 << 40, description="bytes as a plain integer")]
Seconds = Annotated[
    float, Field(gt=0, le=86_400, allow_inf_nan=False, description="seconds as a number")
]
TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]
TokenIds = Annotated[tuple[TokenId, ...], BeforeValidator(_tuple)]
Origin = Annotated[str, Field(min_length=1, max_length=1024)]
Origins = Annotated[tuple[Origin, ...], BeforeValidator(_tuple)]
Directory = Accepts[Annotated[Path, BeforeValidator(_path)] | None, str]
FilePath = Accepts[Annotated[Path, BeforeValidator(_path)] | None, str]
# Any plain file name. `instance` checks the length of the socket paths that it leads to.
Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^./\pC][^/\pC]*$")]


class Processors(FrozenConfig, frozen=True):
    """The processors, which turn rows into output."""

    mode: Literal["process", "inline"] = "process"  # inline: one processor in the engine's process
    count: Count | None = None  # None: one per DP rank, at most one per core


class Bounds(FrozenConfig, frozen=True):
    """The most bytes that each queue may hold."""

    lane_bytes: Bytes = 64 * _MIB  # unacknowledged frames of one lane, at their sender
    max_frame_bytes: Bytes = 16 * _MIB  # one frame; both ends refuse a larger one
    client_window_bytes: Bytes = 4 * _MIB  # unacknowledged output frames of one client
    merge_bytes: Bytes = 64 * _MIB  # output of one client that is not sent yet
    stream_bytes: Bytes = 4 * _MIB  # output of one request that its consumer has not taken
    park_bytes: Bytes = 4 * _MIB  # rows of one rank that came before their bind


class Timeouts(FrozenConfig, frozen=True):
    """The longest waits, in seconds."""

    startup_s: Seconds = 30.0  # from the start of a process to ready
    publish_s: Seconds = 5.0  # of publish() for room on a full lane, with backpressure "block"
    drained_s: Seconds = 10.0  # for a drained row, while its rank gives signs of life
    park_s: Seconds = 5.0  # of rows for their bind
    gap_s: Seconds = 1.0  # for lost frames to be sent again
    close_s: Seconds = 5.0  # for the acknowledgement of a lane's end, and for a child's exit
    client_ahead_s: Seconds = 5.0  # of a client for missing rows before later rows
    stuck_s: Seconds = 10.0  # for a sign of life of a process of `serve`
    recover_s: Seconds | None = None  # of requests for a worker or an engine; None: 2 x startup_s


class Policies(FrozenConfig, frozen=True):
    """Says what follows if a process dies after its start, or gives no sign of life.

    `fail` ends the pipeline or the server with an error. `engine`, `worker`, `api` and `lost_rank`
    apply only to `serve`. Clients read `engine` too.
    """

    engine: Literal["restart", "fail"] = "fail"
    processor: Literal["restart", "fail"] = "restart"
    worker: Literal["restart", "fail"] = "restart"
    api: Literal["restart", "fail"] = "restart"
    restarts: Annotated[int, Field(ge=1, le=1_000_000)] = 3  # the most restarts of one process
    within_s: Seconds = 60.0  # the period that `restarts` counts in
    on_stuck: Literal["report", "kill"] = "report"  # a process without a sign of life
    lost_rank: Literal["move", "wait", "end"] = "move"  # what its requests do
    max_deaths: Annotated[int, Field(ge=0, le=1_000_000)] = (
        2  # of workers that one request survives
    )


class Api(FrozenConfig, frozen=True):
    """The HTTP server of `serve`."""

    host: Annotated[str, Field(min_length=1, max_length=255)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8000  # 0: any free port; the log names it
    workers: Annotated[int, Field(ge=1, le=256)] = 1  # 1: the server does not fork
    timeout_graceful_shutdown: Seconds = 30.0  # time for open streams after the first signal
    timeout_keep_alive: Seconds = 75.0  # a connection without a request for this time is closed
    timeout_receive: Seconds = 30.0  # for a request's head, and for each next piece of its body
    timeout_send: Seconds = 60.0  # a connection that takes no byte for this time is closed
    model: Annotated[str, Field(min_length=1, max_length=255)] = "tokenpipe"  # name in responses
    chat_template: FilePath = default(None)  # None: the one beside the tokenizer
    max_body_bytes: Bytes = 16 * _MIB
    max_choices: Annotated[int, Field(ge=1, le=1_000_000)] = 2048  # prompts of a call, times its n
    max_prompt_ids: Annotated[int, Field(ge=1, le=1 << 24)] = 1 << 20  # of all prompts of a call
    max_connections: Annotated[int, Field(ge=1, le=1_000_000)] | None = None  # of one worker;
    # None: as many as the limit of open files allows
    backlog: Annotated[int, Field(ge=1, le=65_535)] = 2048
    access_log: bool = False
    allowed_origins: Accepts[Origins, list[str]] = default(())  # of web pages; "*" is any


class Log(FrozenConfig, frozen=True):
    """The log lines of all processes."""

    format: Literal["human", "json"] = "human"
    level: Literal["debug", "info", "warning", "error"] = "info"


class Topology(FrozenConfig, frozen=True):
    """The ranks, processors, clients, bounds and deadlines of one instance.

    The constructor raises ConfigError for unknown keys, wrong types and conflicts.
    """

    name: Name | None = None  # None: a random name; the name of a living instance is refused
    data_parallel_size: Annotated[int, Field(ge=1, le=MAX_DP)] = 1
    tensor_parallel_size: Count = 1
    tp_policy: Literal["leader", "verify"] = "leader"
    platform: Literal["cpu", "gpu", "xpu", "metax_gpu"] = "cpu"  # of the workers
    slots_per_rank: Annotated[int, Field(ge=1, le=MAX_SLOTS)] = 256
    vocab_size: Annotated[int, Field(ge=1, le=1 << 31)] | None = None  # None: any int32 >= 0
    tokenizer: FilePath = default(None)  # a tokenizer.json; None: requests have no text
    eos_token_ids: Accepts[TokenIds, list[int]] = default(())
    processors: Accepts[Processors, Mapping[str, Any]] = default(Processors())
    clients: Count = 8  # the most clients at a time
    max_queued_requests: Annotated[int, Field(ge=0, le=1_000_000)] = 8192  # in `serve`, not bound
    backpressure: Literal["block", "fail"] = "block"
    bounds: Accepts[Bounds, Mapping[str, Any]] = default(Bounds())
    timeouts: Accepts[Timeouts, Mapping[str, Any]] = default(Timeouts())
    api: Accepts[Api, Mapping[str, Any]] = default(Api())
    policies: Accepts[Policies, Mapping[str, Any]] = default(Policies())
    log: Accepts[Log, Mapping[str, Any]] = default(Log())
    runtime_dir: Directory = default(None)  # where the instance's private directory is made
    log_dir: Directory = default(None)  # None: in the instance's directory, removed with it

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a YAML file. Raises ConfigError."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise ConfigError(f"{os.fspath(path)}: cannot be read: {reason}") from None
        return cls.loads(text, os.fspath(path))

    @classmethod
    def from_json_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make a topology from the values of `to_json_dict`."""
        return cls.checked(dict(values))

    def to_json_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: all keys, with the number of processors filled in."""
        values: dict[str, Any] = self.model_dump(mode="json")
        values["processors"]["count"] = self.processor_count
        return values

    def replaced(self, **changes: Any) -> Self:
        """Return a copy with some keys changed. It is checked again. Raises ConfigError.

        A section may be given in part: `t.replaced(clients=2, processors={"count": 1})`.
        """
        values = self.model_dump(exclude_unset=True)
        for key, value in changes.items():
            if isinstance(value, Mapping):
                value = {**values.get(key, {}), **value}
            values[key] = value
        return type(self)(**values)

    @property
    def recover_s(self) -> float:
        """How long requests wait while nothing can run them. `timeouts.recover_s`, or its default.

        The default is the time of two starts, because a start may fail once.
        """
        return self.timeouts.recover_s or 2 * self.timeouts.startup_s

    @property
    def processor_count(self) -> int:
        """The number of processors: the given one, else one per DP rank, at most one per core."""
        if self.processors.mode == "inline":
            return 1
        return self.processors.count or min(self.data_parallel_size, _cores())

    def processor_of(self, dp_rank: int) -> int:
        """Return the processor that owns a DP rank. Raises ValueError for an unknown rank."""
        if not 0 <= dp_rank < self.data_parallel_size:
            raise ValueError(f"there is no DP rank {dp_rank} of {self.data_parallel_size}")
        return dp_rank * self.processor_count // self.data_parallel_size

    def ranks_of(self, processor: int) -> tuple[int, ...]:
        """Return the DP ranks that a processor owns: at least one, consecutive."""
        ranks = range(self.data_parallel_size)
        return tuple(dp for dp in ranks if self.processor_of(dp) == processor)

    @property
    def workers(self) -> tuple[tuple[int, int], ...]:
        """All workers as (DP rank, TP rank), in order."""
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
            what = f"more than clients {self.clients}: each is a client (got {self.api.workers})"
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
    # Cached, because a process may pin itself to fewer cores later.
    return len(os.sched_getaffinity(0))

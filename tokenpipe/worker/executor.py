"""What a model must offer to be run by a tokenpipe worker: three methods, one thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from tokenpipe.errors import ConfigError
from tokenpipe.extras import RowExtras
from tokenpipe.topology import Topology
from tokenpipe.wire import StepBind

from .arrays import StepLogprobs


@dataclass(slots=True, eq=False)
class StepRows:
    """What one step computed.

    The arrays are read before the next call of `step`, and may be filled again in it. Their types
    are those that `Publisher.publish` takes.

    Args:
        handles: int64 [rows], each one admitted.
        tokens: int32 or int64 [sum of counts], row after row.
        counts: tokens of each row, int [rows]; None is one each.
        logprobs: a `StepLogprobs`.
        status: `RowStatus` of each row, uint8 [rows]; None is all OK.
        extras: what goes beside the tokens of some rows, by index of the row.
        drained: handles for which `free` returned True, and which no later step has a row of. Each
            is named once.
    """

    handles: Any
    tokens: Any
    counts: Any = None
    logprobs: StepLogprobs | None = None
    status: Any = None
    extras: Mapping[int, RowExtras] | None = None
    drained: Sequence[int] = ()


class Executor(Protocol):
    """One rank's model, as a `WorkerLoop` runs it.

    All calls come from one thread, in the order of the plans. With `tensor_parallel_size` > 1 every
    TP rank gets the same calls in the same order.

    Two attributes may say more; both may be absent. `request_fields`: the names of JSON fields of
    an HTTP request that it accepts beyond the standard ones (`binding.request_fields` then has
    them). `max_model_len`: the most tokens of prompt and output together. They are read once, when
    the executor is made, and must be the same on every rank.
    """

    def admit(self, binding: StepBind) -> None:
        """Take a sequence in: from the next step on its handle gets tokens.

        `prompt_token_ids`, then `output_token_ids` where it has run before; `params` is how to
        sample. An exception ends this request and no other: its caller gets the text of a
        `RequestRefused` or `FieldError` as a refusal (HTTP 400), that of any other exception as a
        failure (HTTP 500). The first TP rank's exception counts.
        """

    def step(self) -> StepRows | None:
        """Run one forward over what is admitted, and return its rows.

        None says that there is nothing to run: the loop then waits until a sequence is admitted or
        freed. `StepRows([], [])` says that the next call may have rows; the loop makes it at once.
        A handle may get rows beyond its end until it is freed. An exception ends the worker.

        An executor may overlap its steps: launch this one and return the rows of an earlier one.
        It returns None only where no step is in flight.
        """

    def free(self, handle: int) -> bool | None:
        """Let a sequence go.

        No later step has a row of it, unless this returns True: then a step in flight may have one,
        and the executor names the handle in `StepRows.drained` of the last such step.
        """


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Where in the topology an engine runs, for its factory."""

    topology: Topology
    dp_rank: int
    tp_rank: int


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What `--engine module:factory --engine-arg name=value` asks for. Raises ConfigError."""

    target: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what names no factory before a process is started for it."""
        if not all(self.target.partition(":")):
            raise ConfigError(f"engine {self.target!r}: must be module:factory")

    def factory(self) -> Callable[..., Executor]:
        """Import it. Raises ConfigError where it is not there, and what its module raises."""
        module_name, _, name = self.target.partition(":")
        try:
            module = import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name != module_name and not module_name.startswith(f"{error.name}."):
                raise
            raise ConfigError(f"engine {self.target!r}: no module {error.name}") from None
        factory = module
        for part in name.split("."):
            try:
                factory = getattr(factory, part)
            except AttributeError:
                raise ConfigError(f"engine {self.target!r}: {module_name} has no {name}") from None
        if not callable(factory):
            raise ConfigError(f"engine {self.target!r}: is a {type(factory).__name__}")
        made: Callable[..., Executor] = factory
        return made

    def make(self, place: RankPlace) -> Executor:
        """Call the factory with the place and the arguments."""
        return self.factory()(place, **self.arguments)

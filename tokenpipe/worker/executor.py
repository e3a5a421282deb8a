"""The interface of a model that a worker can run: three methods, called in one thread."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from tokenpipe.errors import ConfigError
from tokenpipe.extras import RowExtras
from tokenpipe.topology import Topology
from tokenpipe.wire import StepBind

from .arrays import StepLogprobs

ARGUMENTS_VARIABLE = "TOKENPIPE_ENGINE_ARGUMENTS"


@dataclass(slots=True, eq=False)
class StepRows:
    """The rows of one step.

    The arrays are read before the next call of `step`, so that call may fill them again. They have
    the types that `Publisher.publish` takes.

    Args:
        handles: int64 [rows]. Each one was admitted.
        tokens: int32 or int64 [sum of counts], row after row.
        counts: tokens of each row, int [rows]. None means one token a row.
        logprobs: a `StepLogprobs`.
        status: `RowStatus` of each row, uint8 [rows]. None means that all are OK.
        extras: data beside the tokens of some rows, by index of the row.
        drained: handles for which `free` returned True. No later step has a row of them. Name each
            of them once.
        plain: True promises that only `handles` and `tokens` are set. It saves a little time.
    """

    handles: Any
    tokens: Any
    counts: Any = None
    logprobs: StepLogprobs | None = None
    status: Any = None
    extras: Mapping[int, RowExtras] | None = None
    drained: Sequence[int] = ()
    plain: bool = False


class Executor(Protocol):
    """The model of one rank. A `WorkerLoop` runs it.

    All calls come from one thread, in the order of the plans. With `tensor_parallel_size` > 1,
    every TP rank gets the same calls in the same order.

    An executor may have two more attributes. `request_fields` are the names of JSON fields of an
    HTTP request that it accepts beyond the standard ones; `binding.request_fields` has the values.
    `max_model_len` is the most tokens of prompt and output together. The attributes are read once,
    after the executor was made. All ranks must have the same.
    """

    def admit(self, binding: StepBind) -> None:
        """Take a request in. From the next step on, its handle gets tokens.

        The sequence is `prompt_token_ids`, then `output_token_ids` if the request ran before.
        `params` says how to sample. An exception ends this request and no other. Its caller gets
        the exception's text: of a `RequestRefused` or `FieldError` as a refusal (HTTP 400), of any
        other exception as a failure (HTTP 500). The exception of the first TP rank counts.
        """

    def step(self) -> StepRows | None:
        """Run one forward pass over all admitted requests, and return its rows.

        None means that there is nothing to run. The loop then waits until a request is admitted or
        freed. `StepRows([], [])` means that the next call may have rows: the loop calls at once. A
        handle may get rows after its request's end, until it is freed. An exception ends the
        worker.

        An executor may overlap its steps: it launches a step and returns the rows of an earlier
        one. Then it returns None only if no step is in flight.
        """

    def free(self, handle: int) -> bool | None:
        """Forget a request. No later step has a row of it.

        An executor with steps in flight may have such a row. Then it returns True, and it names the
        handle in `StepRows.drained` of the last such step.
        """


@dataclass(frozen=True, slots=True)
class RankPlace:
    """The place of an executor in the topology. Its factory gets this."""

    topology: Topology
    dp_rank: int
    tp_rank: int


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """An executor's factory, as in `--engine module:factory --engine-arg name=value`.

    Raises ConfigError if `target` names no factory.
    """

    target: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the form of `target` before a process is started for it."""
        if not all(self.target.partition(":")):
            raise ConfigError(f"engine {self.target!r}: must be module:factory")

    @classmethod
    def inherited(cls, target: str) -> EngineSpec:
        """Return the spec with the arguments that the environment has, and take them out of it."""
        return cls(target, json.loads(os.environ.pop(ARGUMENTS_VARIABLE, "{}")))

    @property
    def environment(self) -> dict[str, str]:
        """The arguments as a variable, for a child. Its command line is visible to all users."""
        return {ARGUMENTS_VARIABLE: json.dumps(dict(self.arguments))}

    def factory(self) -> Callable[..., Executor]:
        """Import the factory. Raises ConfigError if there is none, or what its module raises."""
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
        """Make an executor: call the factory with the place and the arguments."""
        return self.factory()(place, **self.arguments)

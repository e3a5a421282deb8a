"""Open the resources of a pipeline in order; close the last one first."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack

from tokenpipe.instance import (
    ENDPOINT_VARIABLE,
    MODEL_CARD_FILE,
    Instance,
    ModelCard,
    when_dropped,
    write_model_card,
)
from tokenpipe.layout import layout_of
from tokenpipe.supervisor import Supervisor
from tokenpipe.topology import Topology
from tokenpipe.transport import Peer, Waiter, new_incarnation

from .bindings import BindingTable
from .clients import Clients
from .outcomes import Outcomes
from .pool import Pool
from .processors import ProcessorSet
from .step_lanes import StepLanes


class Resources:
    """Directory, role lock, lanes and child processes of one instance.

    If one of them cannot be opened, the others are closed and the error is raised.
    """

    def __init__(
        self,
        topology: Topology,
        table: BindingTable,
        outcomes: Outcomes,
        clock: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._closing = ExitStack()
        self._closing_ends = 0.0
        self._keep: Callable[[], object] = lambda: None  # cancels the release of a dropped owner
        try:
            self._open(topology, table, outcomes)
        except BaseException:
            self.close(0.0)
            raise

    def _open(self, topology: Topology, table: BindingTable, outcomes: Outcomes) -> None:
        clock, closing = self._clock, self._closing
        self.waiter = waiter = Waiter()
        closing.callback(waiter.close)
        self.instance = instance = Instance.create(
            topology.runtime_dir,
            topology.name,
            {"topology": topology.to_json_dict()},
            longest_lane=max((lane.socket for lane in layout_of(topology).lanes), key=len),
        )
        closing.callback(instance.close)
        self.claim = claim = instance.claim("engine", "0")
        closing.callback(claim.release)
        self.log_dir = topology.log_dir or instance.directory / "logs"
        self.supervisor = Supervisor(self.log_dir, keep_logs=topology.log_dir is not None)
        waiter.watch(self.supervisor.fileno())
        closing.callback(lambda: self.supervisor.close(max(0.0, self._closing_ends - clock())))
        me = Peer("engine", "0", new_incarnation())
        self.clients = Clients(instance, topology, me, waiter, table, outcomes, clock)
        closing.callback(lambda: self.clients.close(self._closing_ends))
        self.clients.open()
        self.pool = Pool(instance, topology, me, self.supervisor, waiter, clock)
        self.processors = ProcessorSet(self.pool, topology, self.supervisor, clock)
        closing.callback(lambda: self.processors.close(self._closing_ends))
        self.step_lanes = StepLanes(instance, topology, waiter, clock)
        closing.callback(lambda: self.step_lanes.close(self._closing_ends))
        claim.attend()

    def announce(self, owner: object) -> None:
        """Put the endpoint into the environment, so that child processes find this instance.

        If `owner`, the pipeline, is dropped without a close, everything is closed with a warning.
        """
        self._keep = when_dropped(
            owner, f"Pipeline {self.instance.directory}", lambda: self.close(0.0)
        )
        ours, previous = str(self.instance.directory), os.environ.get(ENDPOINT_VARIABLE)
        os.environ[ENDPOINT_VARIABLE] = ours
        self._closing.callback(_restore_endpoint, ours, previous)

    def write_model_card(self, card: ModelCard) -> None:
        """Write the model card into the directory. Raises OSError; the old card then stays."""
        write_model_card(self.instance.directory, card)
        self.instance.keep_text(MODEL_CARD_FILE)

    @property
    def next_deadline(self) -> float:
        """The time at which the next turn is due if no message comes."""
        return min(
            self.processors.next_deadline,
            self.clients.next_deadline,
            self.step_lanes.next_deadline,
            self.pool.next_deadline,
        )

    def close(self, timeout_s: float) -> None:
        """Close everything within `timeout_s`."""
        self._keep()
        self._closing_ends = self._clock() + timeout_s
        self._closing.close()


def _restore_endpoint(ours: str, previous: str | None) -> None:
    if os.environ.get(ENDPOINT_VARIABLE) != ours:
        return  # another pipeline has set it since
    if previous is None:
        del os.environ[ENDPOINT_VARIABLE]
    else:
        os.environ[ENDPOINT_VARIABLE] = previous

"""Begin the life of a processor: a new one, or one that goes on from a journal."""

from __future__ import annotations

import logging

from tokenpipe.errors import FrameError
from tokenpipe.postprocess import load_vocabulary
from tokenpipe.topology import Topology
from tokenpipe.transport import new_incarnation

from .core import Processor
from .journal import Journal
from .rank_feed import RankFeed
from .replay import NO_LANE, Life

_log = logging.getLogger(__name__)


def new_life(index: int, topology: Topology) -> Life:
    """Return a life without requests."""
    ranks = topology.ranks_of(index)
    tp_ranks = range(topology.tensor_parallel_size)
    return Life(
        new_incarnation(),
        _make_processor(index, topology),
        {dp: RankFeed(dp) for dp in ranks},
        workers={(dp, tp): NO_LANE for dp in ranks for tp in tp_ranks},
    )


def next_life(index: int, topology: Topology, journal: Journal | None) -> tuple[Life, str]:
    """Return the life of which the journal tells, and "". Else a new life, and why it is new."""
    life = new_life(index, topology)
    if journal is None:
        return life, "it has no journal"
    try:
        past = journal.read()
        if past is None:
            return life, "its journal is empty"
        life.go_through(past)
    except (FrameError, OSError) as error:
        _log.error("processor %d cannot go on from its journal: %s", index, error)
        return new_life(index, topology), str(error)
    return life, ""


def _make_processor(index: int, topology: Topology) -> Processor:
    tokenizer = topology.tokenizer
    vocabulary = None if tokenizer is None else load_vocabulary(tokenizer)
    if vocabulary is not None and vocabulary.no_table_reason:
        why = vocabulary.no_table_reason
        _log.warning("%s: %s; the tokenizer decodes one token at a time", tokenizer, why)
    return Processor(
        index=index,
        ranks=topology.ranks_of(index),
        tp_size=topology.tensor_parallel_size,
        tp_policy=topology.tp_policy,
        slots=topology.slots_per_rank,
        vocab_size=topology.vocab_size,
        eos_token_ids=topology.eos_token_ids,
        drained_timeout_s=topology.timeouts.drained_s,
        park_timeout_s=topology.timeouts.park_s,
        park_bytes=topology.bounds.park_bytes,
        merge_bytes=topology.bounds.merge_bytes,
        vocab=None if vocabulary is None else vocabulary.table,
    )

"""Make one model card from those of the workers, and show it to the API servers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import reduce
from typing import Any

from tokenpipe.errors import StartupError
from tokenpipe.instance import ModelCard

_log = logging.getLogger("tokenpipe.engine")


class ModelCards:
    """The card of each worker rank. While they differ, API servers get what all of them accept."""

    def __init__(self, ranks: Collection[str], write: Callable[[ModelCard], None]) -> None:
        """`ranks` are all workers, as "dp.tp"; `write` shows a card to the API servers."""
        self._ranks = frozenset(ranks)
        self._write = write
        self._cards: dict[str, ModelCard] = {}
        self._written: ModelCard | None = None

    def update(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        """Take the facts that living workers have told, and write the card if it changed.

        Nothing is written before every worker has told its card once. Raises OSError if the card
        cannot be written; the next call tries again.
        """
        for rank, told in facts.items():
            if "model_card" in told:
                self._cards[rank] = ModelCard.from_json_dict(told["model_card"])
        if self._cards.keys() < self._ranks:
            return
        card = reduce(ModelCard.narrowed, self._cards.values())
        if card != self._written:
            self._write(card)
            self._written = card
            _log.info("model card: %s", card)
            if len(set(self._cards.values())) > 1:
                _log.warning("%s; requests get what all of them accept", self._difference())

    def check(self) -> None:
        """Raise StartupError if two workers have different cards; it names them."""
        if len(set(self._cards.values())) > 1:
            raise StartupError(self._difference())

    def _difference(self) -> str:
        ranks: dict[ModelCard, list[str]] = {}
        for rank, card in sorted(self._cards.items()):
            ranks.setdefault(card, []).append(rank)
        groups = [
            f"{', '.join(f'worker {rank}' for rank in of_card)}: "
            f"request_fields {list(card.request_fields)}, max_model_len {card.max_model_len}"
            for card, of_card in ranks.items()
        ]
        return f"the workers' executors differ ({'; '.join(groups)})"

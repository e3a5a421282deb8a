"""An executor with fields of its own and a bound, which refuses what its requests tell it to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tokenpipe import FieldError, RequestRefused, StepBind
from tokenpipe.worker import RankPlace, StepRows

TOKEN = 7


class Declaring:
    """Give each sequence one token a step, always the same.

    `lora` says what becomes of a request: {"refuse": text, "field": name}, {"fail": text},
    {"only_tp": rank} beside either; "echo" refuses it with all its fields as JSON.
    """

    def __init__(
        self,
        place: RankPlace,
        *,
        lengths: str,
        by_rank: bool = False,
        fields: tuple[str, ...] = ("lora", "logit_bias"),
    ) -> None:
        """`lengths`: a file with max_model_len; with `by_rank` the DP rank is added to it."""
        self.place = place
        self.request_fields = list(fields)
        self.max_model_len = json.loads(Path(lengths).read_text())
        if by_rank:
            self.max_model_len += place.dp_rank
        self.running: list[int] = []

    def admit(self, binding: StepBind) -> None:
        order: Any = binding.request_fields.get("lora", {})
        if order == "echo":
            raise RequestRefused(json.dumps(binding.request_fields))
        if order.get("only_tp", self.place.tp_rank) == self.place.tp_rank:
            if "fail" in order:
                raise KeyError(order["fail"])
            if order.get("field") == "prompt_token_ids":
                raise FieldError("prompt_token_ids", order["refuse"])
            if "refuse" in order:
                raise RequestRefused(order["refuse"], order.get("field"))
        self.running.append(binding.handle)

    def free(self, handle: int) -> None:
        self.running.remove(handle)

    def step(self) -> StepRows | None:
        n = len(self.running)
        return StepRows(np.array(self.running, np.int64), np.full(n, TOKEN, np.int32))

"""Write in the instance's directory what its model accepts; an API server reads it there.

The engine's process writes the file before it gives a worker its first request. An API server looks
at the file for each request, so it never judges a request by what an earlier worker said.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tokenpipe.errors import ConfigError

from .atomic_write import write_whole
from .sweep import MODEL_CARD_FILE

MAX_FIELDS = 128
MAX_NAME = 64  # characters of a field's name; a card must fit into one notification
MAX_LENGTH = (1 << 31) - 1

STANDARD_FIELDS = frozenset(
    {
        "add_generation_prompt",
        "add_special_tokens",
        "chat_template_kwargs",
        "continue_final_message",
        "detokenize",
        "ignore_eos",
        "include_stop_str_in_output",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "min_p",
        "min_tokens",
        "model",
        "n",
        "prompt",
        "prompt_logprobs",
        "request_id",
        "return_token_ids",
        "return_tokens_as_token_ids",
        "seed",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "stop",
        "stop_token_ids",
        "stream",
        "stream_interval",
        "stream_interval_ms",
        "stream_options",
        "temperature",
        "top_k",
        "top_logprobs",
        "top_p",
    }
)
"""The fields of a request that an API server reads itself, whatever the model is."""


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What a model accepts beyond the standard fields of a request, and how long a sequence may be.

    Args:
        request_fields: names of JSON fields that reach the executor with the request.
        max_model_len: the most tokens of prompt and output together; None is any number.

    Raises ConfigError for a value of another type, a name that is given twice, and a standard name.
    """

    request_fields: tuple[str, ...] = ()
    max_model_len: int | None = None

    def __post_init__(self) -> None:
        names = self.request_fields
        if type(names) is not tuple or not all(_is_name(name) for name in names):
            raise ConfigError(
                f"request_fields: must be a tuple of names, each of 1 to {MAX_NAME} printable "
                f"characters of ASCII (got {names!r})"
            )
        if len(names) > MAX_FIELDS or len(set(names)) != len(names):
            raise ConfigError(f"request_fields: at most {MAX_FIELDS} names, each one once")
        if standard := sorted(STANDARD_FIELDS.intersection(names)):
            raise ConfigError(
                f"request_fields: {', '.join(standard)}: a standard field of a request "
                "reaches the executor without being named"
            )
        length = self.max_model_len
        if length is not None and (type(length) is not int or not 1 <= length <= MAX_LENGTH):
            raise ConfigError(
                f"max_model_len: must be None or an integer from 1 to {MAX_LENGTH} (got {length!r})"
            )

    def narrowed(self, other: ModelCard) -> ModelCard:
        """Return what this model and another one both accept."""
        fields = tuple(name for name in self.request_fields if name in other.request_fields)
        lengths = [n for n in (self.max_model_len, other.max_model_len) if n is not None]
        return ModelCard(fields, min(lengths, default=None))

    def to_json_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return asdict(self)

    @classmethod
    def from_json_dict(cls, raw: dict[str, object]) -> ModelCard:
        """Make one of plain values. Raises ConfigError if they are not those of a card."""
        fields, length = raw.get("request_fields", ()), raw.get("max_model_len")
        if not isinstance(fields, list | tuple):
            raise ConfigError(f"request_fields: must be a list of names (got {fields!r})")
        return cls(tuple(fields), length)  # type: ignore[arg-type]  # the class checks them


def _is_name(name: object) -> bool:
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME:
        return False
    return name.isascii() and name.isprintable()


def write_model_card(directory: Path, card: ModelCard) -> None:
    """Write the card, or replace it. Raises OSError; the old card is then unchanged."""
    write_whole(directory / MODEL_CARD_FILE, json.dumps(card.to_json_dict()))


class ModelCardReader:
    """Reads the card in an API server."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / MODEL_CARD_FILE
        self._identity = (0, 0)
        self._card: ModelCard | None = None

    def read(self) -> ModelCard | None:
        """Return the present card; None if no worker has been ready yet.

        The file is read again only if it has been replaced. If the system does not let it be
        read, for want of descriptors, say, the last card stays.
        """
        try:
            status = self._path.stat()
            identity = (status.st_ino, status.st_mtime_ns)
            if identity != self._identity:
                self._card = ModelCard.from_json_dict(json.loads(self._path.read_text()))
                self._identity = identity
        except FileNotFoundError:
            self._identity, self._card = (0, 0), None
        except OSError:
            return self._card
        return self._card

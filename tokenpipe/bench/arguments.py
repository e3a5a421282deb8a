"""Make the command lines of the bench's workers and clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .client_results import PlannedRequest
from .options import Options
from .scratch_files import ScratchFiles

PATIENCE_S = 60.0  # a client that waits longer for a row ends; a low rate adds to it


@dataclass(frozen=True)
class Arguments:
    """The values for the command lines of one run. `bits` is the oracle's."""

    options: Options
    endpoint: Path | str
    files: ScratchFiles
    slots: int
    bits: int
    lockstep: bool

    def worker(self, dp: int, tp: int) -> list[str]:
        """Return the arguments of the worker of DP rank `dp` and TP rank `tp`."""
        options, rank = self.options, f"{dp}.{tp}"
        arguments = {
            "--endpoint": self.endpoint,
            "--dp": dp,
            "--tp": tp,
            "--tokens-per-row": options.tokens_per_row,
            "--bits": self.bits,
            "--report": self.files.report("worker", rank),
            "--token-count": self.files.token_count("worker", rank),
            "--rate": options.rate,
            "--logprobs": options.logprobs,
            "--discard": options.discard,
            "--rows": (options.steps or 0) * self.slots if options.discard else None,
            "--pin": 0 if options.pin else None,
            "--lockstep": self.lockstep,
        }
        return command_line(arguments)

    def client(self, index: int, requests: list[PlannedRequest]) -> list[str]:
        """Write the requests of client `index` to a file; return the client's arguments."""
        options, rank = self.options, str(index)
        arguments = {
            "--endpoint": self.endpoint,
            "--name": f"bench-{rank}",
            "--requests": self.files.write_requests(rank, requests),
            "--report": self.files.report("client", rank),
            "--token-count": self.files.token_count("client", rank),
            "--consume": options.consume,
            "--bits": self.bits,
            "--patience": PATIENCE_S + (10 / options.rate if options.rate else 0.0),
            "--logprobs": options.logprobs,
            "--text": options.text,
            "--pin": 1 if options.pin else None,
        }
        return command_line(arguments)


def command_line(arguments: Mapping[str, object]) -> list[str]:
    """Return options as words. True is a flag without a value; None and False are left out."""
    words: list[str] = []
    for name, value in arguments.items():
        if value is True:
            words.append(name)
        elif value is not None and value is not False:
            words += [name, str(value)]
    return words

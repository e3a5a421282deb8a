"""The C boundary, printed: what csrc/ offers to Python."""

from typing_extensions import Buffer

WIRE_VERSION: int

# --- frames -------------------------------------------------------------------------------------

def peek(frame: Buffer, /) -> tuple[int, int, int, int, int]: ...
def check_value(value: Buffer, max_depth: int, /) -> None: ...
def unpack_step(frame: Buffer, /) -> tuple[tuple[int, ...], dict[int, bytes]]: ...
def unpack_output(frame: Buffer, /) -> tuple[tuple[int, ...], dict[int, bytes]]: ...
def pack_step(header: tuple[int, ...], columns: dict[int, Buffer], /) -> bytes: ...
def pack_output(header: tuple[int, ...], columns: dict[int, Buffer], /) -> bytes: ...

class StepPacker:
    """Packs the steps of one worker rank and counts each handle's position.

    Takes C-contiguous buffers: handles, drained int64; tokens, lp_k, lp_ids, lp_ranks int32 or
    int64; counts uint16, int32 or int64; status uint8; lp_values float32. A row with a token
    outside 0..vocab_size-1 becomes BAD_TOKEN; anything else that is wrong is a RowError.
    """

    def __init__(self, dp: int, tp: int, slots: int, vocab_size: int = ...) -> None: ...
    def pack(
        self,
        instance: int,
        sender: int,
        receiver: int,
        seq: int,
        step: int,
        mono_ns: int,
        handles: Buffer,
        tokens: Buffer,
        counts: Buffer | None = None,
        status: Buffer | None = None,
        drained: Buffer | None = None,
        lp_k: Buffer | None = None,
        lp_ids: Buffer | None = None,
        lp_values: Buffer | None = None,
        lp_ranks: Buffer | None = None,
    ) -> bytes: ...
    def commit(self) -> None: ...
    @property
    def bad_tokens(self) -> int: ...

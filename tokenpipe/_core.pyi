"""The types of the C extension, which is built from csrc/."""

from asyncio import AbstractEventLoop, Future
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray
from typing_extensions import Buffer, Self

from tokenpipe.types import OutputExtras, RequestOutput

# numpy's own stubs call an array a Buffer from Python 3.12 on.
_Array: TypeAlias = Buffer | NDArray[Any]

# --- numbers: C defines them, and Python reads them from here -------------------------------------

WIRE_VERSION: int

# wire.Kind
KIND_LANE: int
KIND_STEP: int
KIND_OUTPUT: int
KIND_CONTROL: int

# parts of a handle, for types.make_handle
DP_BITS: int
SLOT_BITS: int
GENERATION_BITS: int

# types.RowStatus
ROW_OK: int
ROW_DRAINED: int
ROW_RECOVERY_STOP: int
ROW_ERROR: int
ROW_BAD_TOKEN: int
ROW_FINISHED: int
ROW_REFUSED: int

# the index in types.FINISH_CODES
FINISH_NONE: int
FINISH_STOP: int
FINISH_LENGTH: int
FINISH_ABORT: int
FINISH_ERROR: int

# types.ErrorCode
ERROR_NONE: int
ERROR_INVALID: int
ERROR_UNAVAILABLE: int
ERROR_LOST: int
ERROR_SLOW: int
ERROR_GAP: int
ERROR_INTERNAL: int
ERROR_CRASHES: int

# wire.StepColumn
STEP_HANDLES: int
STEP_COUNTS: int
STEP_TOKENS: int
STEP_STATUS: int
STEP_POSITION: int
STEP_LP_K: int
STEP_LP_IDS: int
STEP_LP_VALUES: int
STEP_LP_RANKS: int
STEP_EXTRAS_LEN: int
STEP_EXTRAS: int

# wire.OutputColumn
OUT_KEYS: int
OUT_COUNTS: int
OUT_TOKENS: int
OUT_OFFSETS: int
OUT_FINISH: int
OUT_STOP_REASON: int
OUT_LP_K: int
OUT_LP_IDS: int
OUT_LP_VALUES: int
OUT_LP_RANKS: int
OUT_ERROR_LEN: int
OUT_ERROR: int
OUT_TEXT_LEN: int
OUT_TEXT: int
OUT_TEXT_OFFSET: int
OUT_STOP_STRING: int
OUT_CACHED: int
OUT_EXTRAS_LEN: int
OUT_EXTRAS: int
OUT_EXTRAS_OFFSET: int
OUT_ERROR_CODE: int
OUT_ERROR_FIELD: int
OFFSET_UNKNOWN: int  # offset of a final row from a writer that does not know the stream's length
NO_STOP: int  # value of stop_reason and stop_string for none
NO_TOKEN: int  # value of a CAUSE_TEXT that came at the bind

# types.RequestOutputKind
OUTPUT_CUMULATIVE: int
OUTPUT_DELTA: int
OUTPUT_FINAL_ONLY: int

# processor.codes.State
STATE_GONE: int
STATE_PARKED: int
STATE_RUNNING: int
STATE_PREEMPTING: int
STATE_ABORTING: int
STATE_LINGERING: int

# processor.codes.EventKind
EVENT_FINISHED: int
EVENT_ROW_ERROR: int
EVENT_DRAINED: int
EVENT_GAP: int
EVENT_PREFILLED: int
EVENT_PARKED: int
EVENT_PARK_LOST: int
EVENT_CROWDED: int
EVENT_SENT: int
EVENT_SHED: int

# processor.codes.Cause
CAUSE_RECOVERY_STOP: int
CAUSE_WORKER: int
CAUSE_REFUSED: int
CAUSE_BAD_TOKEN: int
CAUSE_STATUS: int
CAUSE_TOKEN: int
CAUSE_MEMORY: int
CAUSE_TEXT: int
CAUSE_EXTRAS: int

# The kind of a note, the first value of each tuple that Inbox.feed returns.
NOTE_ENDED: int  # the request has ended
NOTE_AHEAD: int  # the row came before earlier rows
NOTE_SLOW: int  # more output waits than may wait
NOTE_TORN: int  # text before the row is missing
NOTE_APART: int  # extras before the row are missing

# flags of a word of a Vocab
WORD_NONE: int
WORD_SPECIAL: int
WORD_ADDED: int
WORD_BYTE: int
MAX_WORD: int  # bytes of a word of a Vocab
MAX_ERROR: int  # bytes of an error and its field together
MAX_STOP_BYTES: int  # bytes of all stop strings of a request

# What SendWindow.send returns. 0: the frame is taken. SENT_FIRST: the same, and it is the only
# frame that is kept. SENT_LOOK: the same, and it is time to look for acknowledgements.
SENT_FIRST: int
SENT_LOOK: int
SEND_CLOSED: int  # there is no receiver, or this is a forked child
SEND_MISADDRESSED: int
SEND_FULL: int
SEND_REFUSED: int  # put() said False
FRAME_OVERHEAD: int  # bytes that a kept frame counts in addition to its length

# --- frames -------------------------------------------------------------------------------------

def peek(frame: Buffer, /) -> tuple[int, int, int, int, int]: ...
def check_value(value: Buffer, max_depth: int, /) -> None: ...
def unpack_step(frame: Buffer, /) -> tuple[tuple[int, ...], dict[int, bytes]]: ...
def unpack_output(frame: Buffer, /) -> tuple[tuple[int, ...], dict[int, bytes]]: ...

# Columns: contiguous buffers by id.
def pack_step(header: tuple[int, ...], columns: dict[int, Any], /) -> bytes: ...
def split_text(lengths: Buffer, width: int, text: Buffer, /) -> list[str]: ...
def pack_output(header: tuple[int, ...], columns: dict[int, Any], /) -> bytes: ...

class SocketSend:
    """Calls send(frame, flags) without a Python frame in between. False: it raised `again`."""

    def __init__(
        self, send: Callable[[bytes, int], object], flags: int, again: type[BaseException]
    ) -> None: ...
    def __call__(self, frame: bytes, /) -> bool: ...
    idle: bool  # each call sets it to False

class SocketRecv:
    """Takes messages of a ROUTER with recv(flags), which raises `again` if there is none.

    Each part is judged by itself: one that begins like a frame is a frame of the last route.
    """

    def __init__(
        self, recv: Callable[[int], bytes], flags: int, again: type[BaseException]
    ) -> None: ...
    def take(
        self, limit: int, next_header: tuple[int, int, int, int], out: list[Any], /
    ) -> tuple[bytes, bytes] | None: ...
    idle: bool  # the last take() has taken all messages
    malformed: int  # messages with parts that are not frames, so far (an estimate)
    wire_bytes: int  # of all parts so far, as ZMTP sends them

class SendWindow:
    """Numbers frames, and keeps those that are not acknowledged, bounded in bytes."""

    def __init__(
        self,
        bound: int,
        instance: int = 0,
        sender: int = 0,
        put: Callable[[bytes], bool] | None = None,
        max_frame: int = ...,
    ) -> None: ...
    thread: int  # the only thread that may send; 0: any
    def send(self, frame: bytes, /) -> int: ...
    def push(self, frame: bytes, /) -> None: ...
    def ack(self, applied: int, /) -> int: ...
    def hear(self, message: bytes, /) -> bool: ...
    def between(self, first: int, last: int, /) -> list[bytes]: ...
    def forget(self) -> int: ...
    @property
    def bound(self) -> int: ...
    @property
    def used(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def next_seq(self) -> int: ...
    receiver: int
    def __len__(self) -> int: ...

class StepPacker:
    """Packs the steps of one worker rank and counts each handle's position.

    Takes C-contiguous buffers: handles, drained int64; tokens, lp_k, lp_ids, lp_ranks int32 or
    int64; counts uint16, int32 or int64; status, extras uint8; extras_len uint32; lp_values
    float32. Each has one dimension. A row with a token outside 0..vocab_size-1 becomes BAD_TOKEN.
    Any other wrong value is a RowError.

    `pack_next` takes the header from `window`. It also takes values of other types, of which
    `convert(value, letter, name)` makes such a buffer. A step counts once the window has taken it;
    `withdraw` forgets a step that the window has not taken. `last_step` is the newest step that
    counts.
    """

    def __init__(
        self,
        dp: int,
        tp: int,
        slots: int,
        vocab_size: int = ...,
        window: SendWindow = ...,
        convert: Callable[[Any, str, str], _Array] = ...,
    ) -> None: ...
    def pack(
        self,
        instance: int,
        sender: int,
        receiver: int,
        seq: int,
        step: int,
        mono_ns: int,
        handles: _Array,
        tokens: _Array,
        counts: _Array | None = None,
        status: _Array | None = None,
        drained: _Array | None = None,
        lp_k: _Array | None = None,
        lp_ids: _Array | None = None,
        lp_values: _Array | None = None,
        lp_ranks: _Array | None = None,
        extras_len: _Array | None = None,
        extras: _Array | None = None,
    ) -> bytes: ...
    def commit(self) -> None: ...
    def pack_next(
        self,
        step: int,
        step_ns: int | None,
        handles: Any,
        tokens: Any,
        counts: Any = None,
        status: Any = None,
        drained: Any = None,
        lp_k: Any = None,
        lp_ids: Any = None,
        lp_values: Any = None,
        lp_ranks: Any = None,
        extras_len: Any = None,
        extras: Any = None,
        /,
    ) -> bytes: ...
    def send_next(
        self,
        step: int,
        step_ns: int | None,
        handles: Any,
        tokens: Any,
        counts: Any = None,
        status: Any = None,
        drained: Any = None,
        lp_k: Any = None,
        lp_ids: Any = None,
        lp_values: Any = None,
        lp_ranks: Any = None,
        extras_len: Any = None,
        extras: Any = None,
        /,
    ) -> int: ...
    def withdraw(self) -> None: ...
    @property
    def bad_tokens(self) -> int: ...
    @property
    def last_step(self) -> int | None: ...
    parts: bool  # whether the next frames may have the number of the newest step

# --- the client's inbox -------------------------------------------------------------------------

class _ExtrasReader(Protocol):
    def take(self, data: bytes, begin: int, end: int, last: bool, /) -> OutputExtras | None: ...
    def usage(self, output_tokens: int, cached: int, /) -> tuple[int, int | None]: ...

class Inbox:
    """Maps request keys to streams. It holds the streams weakly, and reports a dropped one."""

    depth: int  # tokens per row of the last frame; read-only

    def __new__(
        cls,
        stream_bytes: int,
        loop: AbstractEventLoop | None = None,
        on_drop: Callable[[int, str], object] | None = None,
        extras: Callable[[int, bool], _ExtrasReader] | None = None,
    ) -> Self: ...
    def feed(self, frame: Buffer, /) -> list[tuple[int, Stream, int]] | None: ...
    def wake(self, at_once: bool = False, /) -> None: ...
    def find(self, key: int, /) -> Stream | None: ...
    def streams(self) -> list[Stream]: ...
    def counters(self) -> dict[str, int]: ...
    def __len__(self) -> int: ...

class Stream:
    """The output of one request: taken, or awaited item by item."""

    def __new__(
        cls,
        inbox: Inbox,
        key: int,
        request_id: str,
        index: int = 0,
        prompt_tokens: int = 0,
        stops: tuple[str, ...] = (),
        kind: int = 1,
    ) -> Self: ...
    @property
    def key(self) -> int: ...
    @property
    def request_id(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def received(self) -> int: ...
    @property
    def live(self) -> bool: ...
    @property
    def over(self) -> bool: ...
    def take(self, limit: int = 0, /) -> RequestOutput | None: ...
    def end(self, finish: int, code: int, error: str, field: str = "", /) -> None: ...
    def fail(self, error: BaseException, /) -> None: ...
    def drop(self) -> None: ...
    def park(self, future: Future[None], /) -> None: ...
    def unpark(self) -> None: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Awaitable[RequestOutput]: ...

# --- text ---------------------------------------------------------------------------------------

class _Decoder(Protocol):
    def step(self, token: int, /) -> str: ...
    def end(self) -> str: ...
    def copy(self) -> Self: ...

class Vocab:
    """The text of each token id. Each argument with words is (bytes of all words, sizes as u16)."""

    def __new__(
        cls,
        words: tuple[bytes, bytes],
        flags: bytes,
        bytewise: bool,
        strip: int,
        first: tuple[bytes, bytes] = ...,
        raw: tuple[bytes, bytes] = ...,
        foreign: Callable[[bool, bool], _Decoder] = ...,
    ) -> Self: ...
    def __len__(self) -> int: ...
    def word(self, token: int, /) -> bytes: ...

# postprocess.TextOptions
_TextOptions = tuple[bool, bool, bool, tuple[str, ...], Sequence[int], bool]

class Text:
    """The text of one sequence: `feed` returns (new text, tokens read, index of the stop or -1)."""

    def __new__(cls, vocab: Vocab, options: _TextOptions) -> Self: ...
    def feed(self, token_ids: Sequence[int], quiet: int = 0, /) -> tuple[str, int, int]: ...
    def end(self) -> str: ...

# --- table --------------------------------------------------------------------------------------

# kind, handle (or client), a, b, step: see processor/codes.py
_TableEvents = list[tuple[int, int, int, int, int]] | None

class Table:
    """The bindings of one processor: it takes step frames and makes output frames."""

    def __new__(
        cls,
        processor: int,
        ranks: Sequence[int],
        slots: int,
        vocab_size: int,
        eos_token_ids: Sequence[int],
        park_bytes: int,
        merge_bytes: int,
        vocab: Vocab | None = None,
    ) -> Table: ...
    def feed(self, dp: int, tp: int, frame: Buffer, now: float = -1, /) -> _TableEvents: ...
    def feed_run(
        self, dp: int, frames: Sequence[object], start: int, now: float = -1, /
    ) -> tuple[int, _TableEvents]: ...
    def flush(
        self,
        client: int,
        header: tuple[int, int, int, int],
        max_bytes: int,
        urgent_only: bool,
        /,
    ) -> tuple[bytes, _TableEvents] | None: ...
    def dirty_clients(self) -> list[int]: ...
    def unsent_bytes(self, client: int, /) -> int: ...
    def urgent(self, client: int, /) -> bool: ...
    def bindings(self, dp: int, /) -> list[tuple[int, int]]: ...
    def restart_steps(self, dp: int, /) -> None: ...
    def counters(self) -> dict[str, int]: ...
    def bind(
        self,
        handle: int,
        key: int,
        client: int,
        max_tokens: int,
        min_tokens: int,
        ignore_eos: bool,
        stop_token_ids: Sequence[int],
        output_token_ids: Sequence[int],
        prefill: bool,
        text: _TextOptions | None = None,
        pace: int = 1,
        pace_ms: int = 0,
        cached: int = 0,
        extras_offset: int = 0,
        /,
    ) -> _TableEvents: ...
    def extras_offset(self, handle: int, /) -> int: ...
    def release(self, now_ns: int, /) -> int: ...
    def stop_string(self, handle: int, /) -> int: ...
    def text_tail(self, handle: int, /) -> tuple[int, bytes]: ...
    def state(self, handle: int, /) -> tuple[int, bool]: ...
    def set_state(self, handle: int, state: int, /) -> None: ...
    def finish(self, handle: int, finish: int, state: int, /) -> None: ...
    def set_error(self, handle: int, code: int, text: str, field: str = "", /) -> None: ...
    def error_extras(self, handle: int, /) -> bytes: ...
    def hold(self, handle: int, /) -> bool: ...
    def total(self, handle: int, /) -> int: ...
    def output(self, handle: int, /) -> tuple[int, ...]: ...
    def drop(self, handle: int, /) -> None: ...
    def floor(self, handle: int, /) -> int: ...
    def busy(self, handle: int, /) -> bool: ...
    def raise_floor(self, handle: int, /) -> None: ...
    def lose_park(self, handle: int, /) -> None: ...
    def open_client(self, client: int, /) -> None: ...
    def close_client(self, client: int, /) -> _TableEvents: ...
    def shed(self, client: int, code: int, error: str, /) -> _TableEvents: ...
    def save(self) -> bytes: ...
    def load(self, saved: Buffer, /) -> list[int]: ...
    def reread(self, handle: int, text: _TextOptions, /) -> None: ...

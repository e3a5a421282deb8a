"""Keep the garbage collector out of the figures."""

from __future__ import annotations

import gc


def freeze_collector() -> None:
    """Collect once and freeze the objects that exist, so that no figure has their collection."""
    gc.collect()
    gc.freeze()

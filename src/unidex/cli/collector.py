"""Python's collector of objects that refer to each other, in a process that runs one command."""

from __future__ import annotations

import atexit
import gc

# Python's own choice is 700 new objects. Torch alone makes half a million as it is loaded, and none of them is garbage.
_NEW_OBJECTS = 20_000


def spare_collections() -> None:
    """Look for garbage less often, and not at all when the process ends: the system takes its memory back."""
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)

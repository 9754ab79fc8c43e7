"""The folder of a saved index: a manifest that names its kind and its sizes, beside the files of the kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unidex.errors import ModelError, quoted
from unidex.storage.atomic import write_folder

FORMAT = 1
_MANIFEST = "manifest.json"


@contextmanager
def saved_folder(folder: Path, manifest: dict[str, Any]) -> Iterator[Path]:
    """Yield a hidden folder to write an index into, which becomes ``folder`` at the end of the block.

    A crash leaves the old index or the new one. An index may be saved over the files it is mapped from.
    """
    folder = Path(folder)
    if folder.exists() and any(folder.iterdir()) and not (folder / _MANIFEST).is_file():
        raise ModelError(
            f"an index must be saved to a new folder or over another index, but {folder} holds other files"
        )
    with write_folder(folder) as new:
        yield new
        (new / _MANIFEST).write_text(json.dumps({"format": FORMAT, **manifest}, indent=2) + "\n", encoding="utf-8")


def read_manifest(folder: Path, kind: str | None = None) -> dict[str, Any]:
    """The manifest of a saved index, checked for its form and, where given, its kind."""
    file = Path(folder) / _MANIFEST
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(
            f"an index folder must hold {_MANIFEST}, but {folder} does not; build the index again"
        ) from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read ({error}); build the index again") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else manifest
        raise ModelError(f"{file} must have format {FORMAT}, but has {quoted(found)}; build the index again")
    for key, wanted in (("kind", str), ("num_ids", int), ("dim", int), ("settings", dict)):
        if not isinstance(manifest.get(key), wanted):
            raise ModelError(f"{file} must name {key!r}, but does not; build the index again")
    if kind is not None and manifest["kind"] != kind:
        raise ModelError(f"{file} must be of an index {kind!r}, but is of {quoted(manifest['kind'])}")
    return manifest

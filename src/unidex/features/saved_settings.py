"""The description of saved features: features.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from unidex.config import Features as Settings
from unidex.errors import ModelError

FORMAT = 2  # Changes whenever the same texts and settings would give other features.
# Format 1 had whole runs of Chinese and Japanese characters as words; all other texts have the same features.
UNSPLIT_FORMAT = 1

# Settings that earlier versions saved and that no recipe could change. The weighting is in the saved idf.
_FIXED = {
    "lower_case": True,
    "subword_vocabulary": 30_000,
    "normalise": "row",
    "keep_names": True,
    **{f"{kind}_scale": 1.0 for kind in ("word", "part", "bigram", "char", "subword")},
}


def read_settings(saved: dict[str, Any]) -> Settings:
    """The settings of saved features; ValueError where they are none."""
    for key, value in _FIXED.items():
        if saved.get(key, value) != value:
            raise ValueError(f"{key} is {saved[key]!r} and can only be {value!r}")
    try:
        return Settings(**{key: value for key, value in saved.items() if key not in {"weighting", *_FIXED}})
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def read_about(file: Path) -> dict[str, Any]:
    """What a file says of its features."""
    try:
        about: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: saved features must be here, but cannot be read ({error})") from None
    if about.get("format") not in (UNSPLIT_FORMAT, FORMAT):
        raise ModelError(
            f"{file}: features of format {FORMAT} are needed, but these have {about.get('format')}; train anew"
        )
    return about

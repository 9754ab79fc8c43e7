"""What is fitted to held-out texts, the ranker and the probabilities, in a file of a run from which it continues."""

from __future__ import annotations

import json
from pathlib import Path

from unidex.scoring.calibration import Calibration
from unidex.scoring.fitted_ranker import read_ranker
from unidex.scoring.rankers import FittedRanker
from unidex.storage.atomic import write_text

FittedParts = tuple[FittedRanker | None, Calibration | None]


def read_fitted(file: Path) -> FittedParts:
    """Read what ``write_fitted`` wrote."""
    ranker, calibration = json.loads(file.read_text(encoding="utf-8"))
    return (
        None if ranker is None else read_ranker(ranker),
        None if calibration is None else Calibration.from_dict(calibration),
    )


def write_fitted(file: Path, fitted: FittedParts) -> None:
    """Write the parts as JSON."""
    write_text(file, json.dumps([None if one is None else one.as_dict() for one in fitted]))

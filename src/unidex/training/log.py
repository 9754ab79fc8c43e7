"""The log of a run: log lines, train.jsonl and, where it is installed, TensorBoard."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from unidex.storage.atomic import write_text
from unidex.storage.disk_errors import writing

logger = logging.getLogger(__name__)

_SHOWN = ("P@1", "P@5", "PSP@1", "PSP@5")


class TrainingLog:
    """The log of one run; without a folder only the log lines remain."""

    def __init__(self, folder: Path | None, num_epochs: int) -> None:
        self._file = None if folder is None else folder / "train.jsonl"
        self._num_epochs = num_epochs
        self._board = _tensorboard(folder)

    def epoch(self, epoch: int, step: int, loss: float, texts_per_second: float) -> None:
        """An epoch is over."""
        logger.info("Epoch %d of %d: loss %.4f, %.0f texts/s.", epoch, self._num_epochs, loss, texts_per_second)
        numbers = {"loss": round(loss, 6), "texts_per_second": round(texts_per_second, 1)}
        self._write({"epoch": epoch, "step": step} | numbers, {f"train/{name}": n for name, n in numbers.items()})

    def before(self, metrics: dict[str, float]) -> None:
        """The network was scored before its first step."""
        logger.info("Before training: held-out texts: %s.", _picked(metrics))

    def validation(self, epoch: int, step: int, metrics: dict[str, float]) -> None:
        """The network was scored on the validation split."""
        logger.info("Epoch %d: held-out texts: %s.", epoch, _picked(metrics))
        rounded = {name: round(value, 4) for name, value in metrics.items()}
        record = {"epoch": epoch, "step": step, "validation": rounded}
        self._write(record, {f"validation/{name}": value for name, value in rounded.items()})

    def keep_until(self, step: int) -> None:
        """Take lines out of train.jsonl that a resumed run will write again."""
        if self._file is None or not self._file.exists():
            return
        kept = [record for record in _records(self._file) if record["step"] <= step]
        write_text(self._file, "".join(json.dumps(record) + "\n" for record in kept))

    def _write(self, record: dict[str, Any], numbers: dict[str, float]) -> None:
        if self._board is not None:
            for name, value in numbers.items():
                self._board.add_scalar(name, value, record["step"])
        if self._file is not None:
            with writing(self._file):
                self._file.parent.mkdir(parents=True, exist_ok=True)
                with self._file.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(record) + "\n")


def _picked(metrics: dict[str, float]) -> str:
    return ", ".join(f"{name} {metrics[name]:.2f}" for name in _SHOWN if name in metrics)


def _tensorboard(folder: Path | None) -> Any:
    """A writer for TensorBoard where it is installed and there is a folder to write to."""
    if folder is None or find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"))


def read_log(folder: Path, phases: Iterable[str]) -> str:
    """The log of a run, one phase after the other: one JSON object per line."""
    lines: list[str] = []
    for phase in phases:
        file = folder / phase / "train.jsonl"
        if file.exists():
            lines += [json.dumps({"phase": phase} | record) + "\n" for record in _records(file)]
    return "".join(lines)


def _records(file: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log; an incomplete last line, left by a killed process, is not one."""
    for line in file.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield json.loads(line)

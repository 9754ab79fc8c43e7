"""The runs of a comparison, one after the other, each in its own process; a finished run is not repeated."""

from __future__ import annotations

import json
import logging
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unidex import progress
from unidex.data.read_options import ReadOptions
from unidex.errors import UnidexError
from unidex.storage.atomic import write_text
from unidex.storage.disk_errors import writing
from unidex.verbs.comparison.plan import Asked, difference, recipe_name
from unidex.verbs.comparison.records import read_record, record_file

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.2
_TAIL_BYTES = 4096


class ComparisonStoppedError(UnidexError):
    """The user interrupted the comparison; finished runs stay."""

    exit_code = 130


@dataclass(frozen=True)
class Failure:
    """A run that failed: its last log line, and the file of its log."""

    name: str
    error: str
    log: str


@dataclass(frozen=True)
class Place:
    """The folder of a comparison: models in ``runs``, files to resume from and logs in ``work``."""

    folder: Path
    data: str
    reading: ReadOptions
    fingerprint: str
    device: str

    def model(self, asked: Asked) -> Path:
        """The model folder of a run."""
        return self.folder / "runs" / asked.name

    def work(self, asked: Asked, what: str) -> Path:
        """A file of a run beside its model."""
        return self.folder / "work" / f"{asked.name}.{what}"

    def record(self, asked: Asked) -> dict[str, Any] | None:
        """Read the measurements of a run; None if it is not finished."""
        return read_record(self.model(asked))

    def check(self, asked: Asked) -> None:
        """Refuse an existing run, finished or not, with other settings or other data."""
        record, model = self.record(asked), self.model(asked)
        plan = self.work(asked, "asked.json")
        if record is not None:
            there, other = record["config"], record["data"]["fingerprint"] != self.fingerprint
            remedy = f"remove {model.name} and {record_file(model).name} there"
        elif plan.exists() and (model.exists() or any(self._training(asked).glob("*/checkpoint-*"))):
            before = json.loads(plan.read_text(encoding="utf-8"))
            there, other = before["config"], before["fingerprint"] != self.fingerprint
            remedy = f"remove {(model if model.exists() else self._training(asked)).name} there"
        elif model.exists():
            raise UnidexError(f"{model}: a run of this comparison must be here, but another model is; move it")
        else:
            return
        differs = "it is of other data" if other else difference(there, asked.config)
        if differs:
            raise UnidexError(
                f"{model}: the run that is here must be the one asked for, but {differs}; "
                f"give another --out, or {remedy}"
            )

    def _training(self, asked: Asked) -> Path:
        """The folder with the checkpoints of a training."""
        return self.model(asked).with_name(f"{asked.name}.training")

    def write_asked(self, asked: Asked) -> Path:
        """Write the file with the plan of a run for its process."""
        file = self.work(asked, "asked.json")
        content = {
            "name": asked.name,
            "folder": str(self.model(asked)),
            "data": self.data,
            "reading": asdict(self.reading),
            "fingerprint": self.fingerprint,
            "recipe": asked.recipe,
            "system": recipe_name(asked.recipe),
            "settings": list(asked.settings),
            "seed": asked.seed,
            "device": self.device,
            "config": asked.config.model_dump(),
            "command": self.command(asked),
        }
        with writing(file):
            file.parent.mkdir(parents=True, exist_ok=True)
        if not self.model(asked).exists() and not self._training(asked).exists():
            # Usage of a run that was deleted.
            self.work(asked, "used.json").unlink(missing_ok=True)
        write_text(file, json.dumps(content, default=str) + "\n")
        return file

    def command(self, asked: Asked) -> str:
        """The command that trains the same model."""
        settings = [word for setting in asked.settings for word in ("--set", setting)]
        seed = [] if asked.seed == 0 else ["--seed", str(asked.seed)]
        words = ["unidex", "train", self.data, *self.reading.flags(), "--recipe", asked.recipe, *settings, *seed]
        return shlex.join([*words, "--out", str(self.model(asked))])


def run_all(place: Place, runs: Sequence[Asked]) -> list[Failure]:
    """Do the unfinished runs; return the ones that failed."""
    failures = []
    with progress.task("comparing", len(runs), unit="runs") as advance:
        for number, asked in enumerate(runs, start=1):
            title = f"run {number} of {len(runs)}: {asked.name}"
            if place.record(asked) is None:
                logger.info("%s", title)
                advance(0, asked.name)
                failure = _run(place, asked, advance)
                if failure is not None:
                    logger.warning("%s failed: %s", title, failure.error)
                    failures.append(failure)
            record = place.record(asked)
            if record is not None:
                test, seconds = record["test"], record["training"]["wall_seconds"]
                logger.info("%s: P@1 %.2f, PSP@1 %.2f, trained in %.1f s", title, test["P@1"], test["PSP@1"], seconds)
            advance(1)
    return failures


def _run(place: Place, asked: Asked, advance: progress.Advance) -> Failure | None:
    log = place.work(asked, "log")
    file = place.write_asked(asked)
    with writing(log), log.open("ab") as output:
        start = output.tell()
        process = subprocess.Popen(
            # -P: never import modules from the current folder.
            [sys.executable, "-P", "-m", "unidex.verbs.comparison.worker", str(file)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            # This process alone gets the interrupt of a terminal, and lets the run finish its step.
            start_new_session=True,
        )
        assert process.stdin is not None
        try:
            code = _watched(process, log, start, asked.name, advance)
        except KeyboardInterrupt:
            logger.info("Stopping %s after its current step; interrupt again to end it at once.", asked.name)
            process.stdin.close()
            process.wait()
            raise ComparisonStoppedError("interrupted; finished runs stay, and the same command continues") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            process.stdin.close()
    if code == 0 and place.record(asked) is not None:
        return None
    return Failure(asked.name, _reason(code, _last_line(log, start)), str(log))


def _watched(process: subprocess.Popen[bytes], log: Path, start: int, name: str, advance: progress.Advance) -> int:
    while True:
        try:
            return process.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            advance(0, f"{name}: {_last_line(log, start)[:60]}")


def _last_line(log: Path, start: int) -> str:
    with log.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(start, size - _TAIL_BYTES))
        lines = file.read().decode("utf-8", errors="replace").split("\n")
    return next((" ".join(line.split()) for line in reversed(lines) if line.strip()), "").removeprefix("unidex: ")


def _reason(code: int, last: str) -> str:
    if code >= 0:
        return last or f"it ended with exit code {code} and logged nothing"
    name = {known.value: known.name for known in signal.Signals}.get(-code, f"signal {-code}")
    why = "; the machine may be out of memory" if -code == signal.SIGKILL else ""
    return f"ended by {name}{why}" + (f"; its last log line: {last}" if last else "")

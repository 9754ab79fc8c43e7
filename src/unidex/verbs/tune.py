"""``tune``: search for better settings of a recipe on held-out train texts; test texts are not used.

Every finished trial is one line of ``trials.jsonl``, and the next trial depends on these lines alone. So a search that
was killed continues as if it had not been.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unidex import progress
from unidex.config.recipes import load
from unidex.data.dataset import Split
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.errors import ConfigError, MissingExtraError, UnidexError
from unidex.report.trial_page import tuning_page
from unidex.storage.atomic import write_text
from unidex.storage.disk_errors import writing
from unidex.storage.locks import LockedError, locked
from unidex.verbs.comparison.records import fingerprint
from unidex.verbs.search_space import Dimension, search_space

if TYPE_CHECKING:
    from unidex.config import Config
    from unidex.data.dataset import Dataset

logger = logging.getLogger(__name__)

RECIPE, TRIALS, PAGE, _STUDY = "recipe.toml", "trials.jsonl", "report.html", "study.json"
_VALIDATION = 0.1
# A trial ends where validation has chosen: the decay phase and the ranker come after it.
_SHORT = ["train.decay_epochs=0", "predict.rank=sum"]


def tune(
    data: str | Path,
    *,
    out: str | Path,
    recipe: str = "auto",
    num_trials: int = 20,
    settings: Sequence[str] = (),
    seed: int = 0,
    device: str = "auto",
    reading: ReadOptions | None = None,
) -> dict[str, Any]:
    """Try settings of a recipe, and write the best as a recipe file with a page about all trials.

    The first trial is the recipe as it is. ``num_trials`` counts the trials that ``out`` has already.
    """
    if find_spec("optuna") is None:
        raise MissingExtraError("tune", "tune")
    folder, base = Path(out), load(recipe, list(settings))
    space = search_space(base)
    dataset = read(data, reading)
    study = {"data": fingerprint(dataset), "recipe": base.model_dump(), "seed": seed}
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked(folder / "tune", wait_seconds=0.0):
            _check_study(folder / _STUDY, study)
            trials = _run_trials(folder, dataset, recipe, list(settings), space, num_trials, seed, device)
    except LockedError:
        raise UnidexError(f"{folder}: only one search at a time may use a folder, but another does; wait") from None
    best = max(trials, key=lambda trial: trial["value"])
    chosen = best["settings"] if best["value"] > trials[0]["value"] else []
    tuned = load(recipe, [*settings, *chosen])
    about = f"{base.recipe or recipe}, tuned on {dataset.name} with {len(trials)} trials"
    write_text(folder / RECIPE, tuned.model_copy(update={"about": about}).as_toml())
    flags = [] if reading is None else reading.flags()
    result = {
        "data": dataset.name,
        "recipe": recipe,
        "metric": trials[0]["metric"],
        "before": trials[0]["value"],
        "best": best["value"],
        "settings": chosen,
        "trials": trials,
        "file": str(folder / RECIPE),
        "command": shlex.join(
            ["unidex", "train", str(data), *flags, "--recipe", str(folder / RECIPE), "--out", "MODEL"]
        ),
    }
    write_text(folder / PAGE, tuning_page(result, {one.name: one.default for one in space}))
    return result


def _check_study(file: Path, study: dict[str, Any]) -> None:
    """Refuse to continue a search with other data or another recipe."""
    study = json.loads(json.dumps(study, default=str))
    if not file.exists():
        write_text(file, json.dumps(study, indent=2) + "\n")
        return
    before = json.loads(file.read_text(encoding="utf-8"))
    differ = [name for name in study if before.get(name) != study[name]]
    if differ:
        raise UnidexError(
            f"{file.parent}: a search must continue with the same data, recipe and seed, but another {differ[0]} is "
            "given; give another --out"
        )


def _run_trials(
    folder: Path,
    dataset: Dataset,
    recipe: str,
    settings: list[str],
    space: list[Dimension],
    num_trials: int,
    seed: int,
    device: str,
) -> list[dict[str, Any]]:
    trials = _read_trials(folder / TRIALS)
    data = dataset.with_test(Split.empty(dataset.num_labels))
    with progress.task("tuning", num_trials, unit="trials") as advance:
        advance(min(len(trials), num_trials))
        while len(trials) < num_trials:
            number = len(trials)
            values = _next_values(trials, space, seed)
            chosen = [f"{one.name}={one.as_text(values[one.name])}" for one in space]
            trial = {"number": number, "values": values, "settings": chosen}
            trial |= _measured(data, recipe, [*settings, *chosen], seed, device)
            with writing(folder / TRIALS), (folder / TRIALS).open("a", encoding="utf-8") as out:
                out.write(json.dumps(trial) + "\n")
                out.flush()
                os.fsync(out.fileno())
            trials.append(trial)
            best = max(trials, key=lambda one: one["value"])
            said = trial.get("error") or f"{trial['metric']} {trial['value']:.2f}"
            logger.info(
                "Trial %d of %d: %s in %.0f s. Best: trial %d with %.2f.",
                number + 1,
                num_trials,
                said,
                trial["seconds"],
                best["number"] + 1,
                best["value"],
            )
            advance(1)
    return trials


def _read_trials(file: Path) -> list[dict[str, Any]]:
    """The finished trials; an incomplete last line, left by a killed process, is cut off."""
    if not file.exists():
        return []
    content = file.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        os.truncate(file, len(whole))
    return [json.loads(line) for line in whole.splitlines()]


def _next_values(trials: list[dict[str, Any]], space: list[Dimension], seed: int) -> dict[str, Any]:
    """The values of the next trial: the recipe's own first, then by a tree-structured Parzen estimator."""
    if not trials:
        return {one.name: one.default for one in space}
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # Another seed for each trial: a sampler that was made anew must not draw the same again.
    sampler = optuna.samplers.TPESampler(seed=1000 * seed + len(trials), n_startup_trials=5)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    distributions = {one.name: one.distribution() for one in space}
    for trial in trials:
        study.add_trial(
            optuna.trial.create_trial(params=trial["values"], distributions=distributions, value=trial["value"])
        )
    found: dict[str, Any] = study.ask(distributions).params
    return found


def _measured(data: Dataset, recipe: str, settings: list[str], seed: int, device: str) -> dict[str, Any]:
    """Train with settings; the value is the metric of the recipe on held-out texts, 0 if they cannot be combined."""
    from unidex.scoring.network_metrics import metric_value
    from unidex.training.phases import with_metric
    from unidex.verbs.train import train

    started = time.monotonic()
    short = [*settings, *_SHORT, *_held_out(load(recipe, settings))]
    metric = with_metric(load(recipe, settings)).train.metric
    try:
        with _quiet("unidex.training", "unidex.verbs.train"):
            model = train(data, recipe, settings=short, seed=seed, device=device)
    except ConfigError as error:
        return {"metric": metric, "value": 0.0, "error": str(error), "seconds": 0.0}
    found = model.metrics.get("validation")
    if found is None:
        raise UnidexError("a search needs held-out texts, but the train texts are too few to hold some out")
    seconds = time.monotonic() - started
    return {"metric": metric, "value": metric_value(found, metric), "metrics": found, "seconds": round(seconds, 1)}


@contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """The log of each training would hide the log of the search."""
    levels = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def _held_out(config: Config) -> list[str]:
    return [] if config.train.validation > 0 else [f"train.validation={_VALIDATION}"]

"""``plan``: memory, disk and time of every phase of a training before it runs, and whether this machine has them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unidex.config.recipes import load as load_config
from unidex.data.dataset import Dataset
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.errors import UnidexError
from unidex.storage.resources import available_memory, free_disk, process_memory

if TYPE_CHECKING:
    from unidex.config import Config
    from unidex.training.requirements import Requirement
    from unidex.training.run_sizes import Sizes
    from unidex.training.smaller_runs import Change

logger = logging.getLogger(__name__)

# A process with all libraries loaded.
_PROGRAM = 195 << 20
_PROGRAM_SECONDS = 3.0  # to load them
# The system needs some memory for the pages of mapped files.
_SHARE = 0.95


@dataclass(frozen=True)
class Plan:
    """What a run needs, and what there is.

    Attributes:
        phases: memory and disk by phase.
        seconds: CPU seconds by phase; empty where they were not measured.
        memory_available: bytes that this process may take, what it has taken included.
        disk_free: free bytes where the model folder will be.
        remedy: settings that make the run fit, as ``--set`` takes them; empty where it fits or nothing helps.
        sizes: of the data set, and of the recipe.
    """

    phases: dict[str, Requirement]
    seconds: dict[str, float]
    memory_available: int
    disk_free: int
    remedy: tuple[str, ...]
    sizes: dict[str, Any]

    @property
    def peak(self) -> str:
        """The phase that needs the most memory."""
        return max(self.phases, key=lambda name: self.phases[name].total_memory)

    @property
    def memory(self) -> int:
        """The most memory that a phase needs, in bytes."""
        return self.phases[self.peak].total_memory

    @property
    def disk(self) -> int:
        """The most disk that a phase needs, in bytes."""
        return max(need.total_disk for need in self.phases.values())

    @property
    def fits(self) -> bool:
        """Whether this machine has the memory and the disk."""
        return not self.lacks_memory and self.disk <= self.disk_free

    @property
    def lacks_memory(self) -> bool:
        """Whether it needs more memory than this machine can give to it."""
        return self.memory > _SHARE * self.memory_available

    @property
    def cpu_seconds(self) -> float | None:
        """CPU seconds of the whole run, with the start of the program; None where they were not measured."""
        return round(sum(self.seconds.values()) + _PROGRAM_SECONDS, 1) if self.seconds else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, sizes in bytes."""
        phases = {
            name: {"memory": need.memory, "disk": need.disk, "cpu_seconds": self.seconds.get(name)}
            for name, need in self.phases.items()
        }
        return {
            "phases": phases,
            "peak_phase": self.peak,
            "peak_memory": self.memory,
            "peak_disk": self.disk,
            "cpu_seconds": self.cpu_seconds,
            "memory_available": self.memory_available,
            "disk_free": self.disk_free,
            "fits": self.fits,
            "remedy": list(self.remedy),
            "sizes": self.sizes,
        }


def plan(
    data: Any,
    recipe: str | Path = "auto",
    *,
    settings: Sequence[str] = (),
    num_labels: int | None = None,
    num_texts: int | None = None,
    dim: int | None = None,
    processes: int = 1,
    out: Path = Path(),
    reading: ReadOptions | None = None,
    measures_time: bool = True,
) -> Plan:
    """Plan a training.

    Args:
        data: a data set, a file or a folder; its texts say how long texts are and how words are distributed.
        recipe: name of a recipe or a TOML file.
        settings: ``section.key=value`` over the recipe.
        num_labels: of a set like this one with so many labels; those of the data unless given.
        num_texts: likewise of train texts.
        dim: numbers per vector of the encoder.
        processes: number of processes; memory and time are those of each.
        out: where the model folder will be.
        reading: how to read ``data``.
        measures_time: whether to train a few steps on a sample, to know the time.
    """
    import torch

    from unidex.training.run_sizes import Sizes, sample_of
    from unidex.training.speed import Speed, seconds_by_phase

    chosen = [*settings, *([] if dim is None else [f"encoder.dim={dim}"])]
    config = load_config(recipe, chosen)
    dataset = data if isinstance(data, Dataset) else read(data, reading)
    last = list(config.in_stages().values())[-1]
    sizes = Sizes.of(dataset, last)
    if num_labels or num_texts:
        sizes = sizes.scaled(num_labels, num_texts)
        if sizes.num_features:
            sizes = sizes.with_features(sample_of(dataset), last)
    seconds: dict[str, float] = {}
    if measures_time:
        measured_on = sample_of(dataset), last, sizes.num_features, torch.device("cpu")
        speed = Speed.measured(*measured_on, sizes.num_texts)
        seconds = seconds_by_phase(config.in_stages(), sizes, speed, processes)
    return _plan(last, sizes, seconds, processes, out)


def check_fits(dataset: Dataset, config: Config, out: Path, processes: int) -> None:
    """Refuse a training that this machine has no room for, with the settings that make it fit.

    A run that fits whatever its features are is not measured, so that the check of a small one takes no time.
    """
    from unidex.training.run_sizes import Sizes

    last = list(config.in_stages().values())[-1]
    most = Sizes.upper_bound(dataset, last)
    if _plan(last, most, {}, processes, out).fits:
        return
    found = _plan(last, Sizes.of(dataset, last), {}, processes, out)
    if not found.fits:
        raise UnidexError(refusal(found) if found.lacks_memory else f"{out}: {refusal(found)}")


def refusal(found: Plan) -> str:
    """Why a run does not fit, and what to change, in one line."""
    need = found.phases[found.peak]
    largest = max(need.memory, key=lambda name: need.memory[name])
    if found.lacks_memory:
        what = (
            f"training must fit into memory, but {found.peak} needs {gigabytes(found.memory)} "
            f"({largest}: {gigabytes(need.memory[largest])}) and {gigabytes(found.memory_available)} are available;"
        )
    else:
        sizes = f"needs {gigabytes(found.disk)} and {gigabytes(found.disk_free)} are free"
        what = f"training must fit on the disk, but {sizes}; free space on the disk, or"
    remedy = " ".join(f"--set {setting}" for setting in found.remedy) or "fewer texts or labels, or a larger machine"
    return f"{what} use {remedy}, or --force to try anyway"


def gigabytes(size: float) -> str:
    """A size for people.

    >>> gigabytes(3_500_000_000), gigabytes(40_000_000)
    ('3.5 GB', '40 MB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _plan(config: Config, sizes: Sizes, seconds: dict[str, float], processes: int, out: Path) -> Plan:
    from unidex.training.requirements import requirements
    from unidex.training.smaller_runs import smaller_settings

    # What the measurement has taken is free again for the run.
    available, free = available_memory() + process_memory(), free_disk(out)

    def planned(changed: Config, remedy: tuple[str, ...] = ()) -> Plan:
        needs = requirements(changed, sizes, _PROGRAM, processes)
        about = vars(sizes) | {"dim": changed.encoder.dim, "processes": processes, "recipe": changed.recipe}
        return Plan(needs, seconds, available, free, remedy, about)

    wanted = planned(config)
    if wanted.fits:
        return wanted
    # One setting alone if that is enough; else one after the other, each on top of the last, without those that the
    # others make needless.
    changes = smaller_settings(config)
    for change in changes:
        if _fits(planned, config, [change]):
            return planned(config, (change[0],))
    taken: list[Change] = []
    for change in changes:
        taken = [other for other in taken if _key(other) != _key(change)] + [change]
        if not _fits(planned, config, taken):
            continue
        for some in tuple(taken):
            fewer = [other for other in taken if other is not some]
            if _fits(planned, config, fewer):
                taken = fewer
        return planned(config, tuple(name for name, _ in taken))
    return wanted


def _fits(planned: Callable[[Config], Plan], config: Config, changes: Sequence[Change]) -> bool:
    """Whether a recipe with these changes fits."""
    for _, change in changes:
        config = change(config)
    return planned(config).fits


def _key(change: Change) -> str:
    """The setting that a change sets."""
    return change[0].partition("=")[0]

"""Bulk prediction on Ray: actors of Ray Data that load the model once and predict partitions."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from unidex.errors import MissingExtraError, UnidexError
from unidex.verbs.bulk import BulkJob, Partition

# Only the names of partitions travel between processes.
_STORE_BYTES = 80 << 20


class _Actor:
    """Predicts partitions in a process of Ray."""

    def __init__(self, job: BulkJob) -> None:
        logging.disable(logging.INFO)
        self._job = job

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Predict the partitions of a batch; a partition whose file is there was done before its actor was lost."""
        found: dict[str, list[Any]] = {"num_texts": [], "num_labels": [], "num_without_labels": []}
        for number, file, groups in zip(batch["number"], batch["file"], batch["row_groups"], strict=True):
            chosen = tuple(int(group) for group in groups if group >= 0)
            result = self._job.run(Partition(int(number), str(file), chosen))
            for name, values in found.items():
                values.append(result[name])
        return found


def run_on_ray(
    job: BulkJob, partitions: Sequence[Partition], num_workers: int, done: Callable[[dict[str, Any]], None]
) -> None:
    """Predict partitions on Ray: on the cluster of RAY_ADDRESS, else on the cores of this machine.

    The folders of the model, the texts and the results must be the same on all machines. Ray starts a lost actor again
    and gives it its partition again.
    """
    try:
        ray: Any = import_module("ray")
        import_module("ray.data")
    except ImportError:
        raise MissingExtraError("--engine ray", "ray") from None
    started = not ray.is_initialized()
    if started:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if not os.environ.get("RAY_ADDRESS"):
            cores = num_workers or len(os.sched_getaffinity(0))
            options |= {"num_cpus": cores, "include_dashboard": False, "object_store_memory": _STORE_BYTES}
            # Else Ray's workers give way to every other process (niceness 15).
            os.environ.setdefault("RAY_worker_niceness", "0")
        ray.init(**options)
    try:
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        workers = min(len(partitions), num_workers or int(ray.cluster_resources().get("CPU", 1)))
        # A list without numbers has no type in Arrow: -1 is no row group.
        rows = [{"number": p.number, "file": p.file, "row_groups": list(p.row_groups) or [-1]} for p in partitions]
        results = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            _Actor,
            fn_constructor_args=(job,),
            batch_size=1,
            num_cpus=1,
            compute=ray.data.ActorPoolStrategy(size=workers),
        )
        for row in results.iter_rows():
            done({name: int(value) for name, value in row.items()})
    except ray.exceptions.RayError as error:
        reason = " ".join(str(getattr(error, "cause", None) or error).split())[-300:]
        raise UnidexError(f"a partition could not be predicted on Ray ({reason}); run the same command again") from None
    finally:
        if started:
            ray.shutdown()

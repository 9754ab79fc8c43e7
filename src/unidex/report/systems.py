"""Runs as systems: one row per recipe and augmentation, with mean and spread over its seeds, as plain values."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

# What is shown, in this order; table.json has all. nDCG@1 is P@1.
SHOWN = ("P@1", "P@3", "P@5", "nDCG@3", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")
_OF_RUN = (
    *("name", "folder", "seed", "command", "training", "prediction"),
    *("num_parameters", "model_bytes", "versions", "machine"),
)
_COSTS = ("wall_seconds", "cpu_seconds", "peak_memory_bytes", "num_parameters", "model_bytes", "predict_cpu_ms")


def systems_of(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs, as ``records.model_record`` gives them, joined to systems, in the order of their first runs.

    Runs that differ in nothing but the seed are one system. A run without a seed, and where two systems would have one
    name, are called by the name of the run, or by its folder.
    """
    groups: list[list[dict[str, Any]]] = []
    for record in records:
        for group in groups:
            known = None not in (group[0]["seed"], record["seed"])
            if known and all(group[0][key] == record[key] for key in ("recipe", "augment", "config")):
                group.append(record)
                break
        else:
            groups.append([record])
    names = [_name(group[0]) for group in groups]
    for key in ("name", "folder"):
        names = [
            str(group[0][key]) if names.count(name) > 1 else name for name, group in zip(names, groups, strict=True)
        ]
    return [_system(name, group) for name, group in zip(names, groups, strict=True)]


def spread_of(values: Iterable[float | None]) -> dict[str, Any]:
    """Mean, sample standard deviation and the values themselves; without a value None, with one no deviation.

    >>> spread_of([1.0, 3.0])
    {'mean': 2.0, 'spread': 1.4142135623730951, 'values': [1.0, 3.0]}
    >>> spread_of([5]), spread_of([None])
    ({'mean': 5.0, 'spread': None, 'values': [5]}, {'mean': None, 'spread': None, 'values': []})
    """
    known = [value for value in values if value is not None]
    return {
        "mean": statistics.fmean(known) if known else None,
        "spread": statistics.stdev(known) if len(known) > 1 else None,
        "values": known,
    }


def shown_metrics(systems: Sequence[dict[str, Any]]) -> list[str]:
    """The metrics that a table shows: all of `SHOWN` that any system has."""
    return [name for name in SHOWN if any(name in system["metrics"] for system in systems)]


def best_of(systems: Sequence[dict[str, Any]], metric: str) -> set[int]:
    """Which systems are best in a metric, as it is printed: with two decimals, so that equals are all best.

    >>> rows = [{"metrics": {"P@1": {"mean": mean}}} for mean in (50.001, 49.0, 50.004)]
    >>> sorted(best_of(rows, "P@1")), best_of(rows, "P@3")
    ([0, 2], set())
    """
    means = {
        at: round(system["metrics"][metric]["mean"], 2)
        for at, system in enumerate(systems)
        if metric in system["metrics"]
    }
    return {at for at, mean in means.items() if mean == max(means.values())}


def _name(record: dict[str, Any]) -> str:
    if record["seed"] is None:
        return str(record["name"])
    return f"{record['recipe']}" + ("" if record["augment"] == "none" else f" + {record['augment']}")


def _system(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    first = runs[0]
    metrics = [key for key in first["test"] if "@" in key]
    return {
        "name": name,
        "recipe": first["recipe"],
        "about": first["about"],
        "augment": first["augment"],
        "settings": first["settings"],
        "seeds": [run["seed"] for run in runs],
        "metrics": {metric: spread_of(run["test"].get(metric) for run in runs) for metric in metrics},
        "bins": _bins([run["test"]["bins"] for run in runs]),
        "classes": _bins([run["test"]["classes"] for run in runs]),
        "costs": {cost: spread_of(_cost(run, cost) for run in runs) for cost in _COSTS},
        "runs": [
            {key: run.get(key) for key in _OF_RUN}
            | {"metrics": {key: run["test"][key] for key in run["test"] if "@" in key}}
            for run in runs
        ],
    }


def _bins(of_runs: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Groups of labels, the contribution of each the mean over runs."""
    return [
        {key: same[0][key] for key in ("name", "num_labels", "mean_frequency")}
        | {"contribution": spread_of(group["contribution"] for group in same)}
        for same in zip(*of_runs, strict=True)
    ]


def _cost(run: dict[str, Any], cost: str) -> Any:
    if cost in ("num_parameters", "model_bytes"):
        return run.get(cost)
    if cost == "predict_cpu_ms":
        prediction = run["prediction"]
        return 1e3 * prediction["cpu_seconds"] / prediction["num_texts"] if prediction.get("num_texts") else None
    return run["training"].get(cost)

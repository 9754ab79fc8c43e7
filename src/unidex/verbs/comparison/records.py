"""The measurements of a finished run: ``NAME.run.json`` beside its model folder ``NAME``.

Beside, because a model folder holds nothing but the model. Of a model without such a file, what its own files say.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import platform
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from safetensors import SafetensorError, safe_open

from unidex import __version__
from unidex.config.recipes import read_saved
from unidex.data.dataset import Dataset
from unidex.data.texts import Texts
from unidex.errors import ModelError
from unidex.index.manifest import read_manifest
from unidex.model.journal import manifest_hash
from unidex.storage.atomic import write_text
from unidex.storage.eight_bits import num_weights
from unidex.storage.mapped import load_array

FORMAT = 1
_BLOCK = 4096
_PACKAGES = ("torch", "numpy", "scipy", "faiss-cpu", "tokenizers", "transformers")
_KEYS = ("recipe", "augment", "seed", "config", "data", "test", "training", "prediction", "num_parameters", "manifest")


def data_record(dataset: Dataset) -> dict[str, Any]:
    """Describe a data set by a few numbers."""
    return {
        "name": dataset.name,
        "fingerprint": fingerprint(dataset),
        "num_train": len(dataset.train),
        "num_test": len(dataset.test),
        "num_labels": dataset.num_labels,
    }


def fingerprint(dataset: Dataset) -> str:
    """16 hexadecimal digits of a SHA-256 over labels, texts, pairs and propensity constants.

    The name of the data set, uids of texts and where it was read from do not count: the same content in another format
    has the same fingerprint.

    >>> from scipy import sparse
    >>> from unidex.data.dataset import Labels, Split
    >>> train = Split.of(Texts.of(["red shoe", "hat"]), sparse.csr_array(np.eye(2)))
    >>> shop = Dataset("shop", Labels(Texts.of(["shoes", "hats"])), train)
    >>> fingerprint(shop) == fingerprint(Dataset("store", shop.labels, train))
    True
    >>> fingerprint(shop) == fingerprint(Dataset("shop", Labels(Texts.of(["shoes", "caps"])), train))
    False
    """
    digest = hashlib.sha256()
    _add_texts(digest, dataset.labels.texts)
    _add_texts(digest, dataset.labels.uids)
    if dataset.labels.concepts:
        digest.update(msgspec.json.encode(sorted(dataset.labels.concepts.items())))
    for split in dataset.splits:
        _add_texts(digest, split.texts)
        for pairs, kind in ((split.positives, np.float32), (split.filter_pairs, np.bool_)):
            # Widths of whole numbers differ between formats, and mean nothing.
            for array in (pairs.indptr.astype(np.int64), pairs.indices.astype(np.int64), pairs.data.astype(kind)):
                digest.update(np.ascontiguousarray(array).data)
    digest.update(repr((dataset.propensity.a, dataset.propensity.b)).encode())
    return digest.hexdigest()[:16]


def _add_texts(digest: Any, texts: Texts | None) -> None:
    if texts is None:
        digest.update(b"none")
        return
    # With the lengths, so that "ab", "c" is not "a", "bc".
    digest.update(np.ascontiguousarray(texts.lengths().astype(np.int64)).data)
    for start in range(0, len(texts), _BLOCK):
        digest.update("".join(texts[start : start + _BLOCK]).encode())


def versions() -> dict[str, str]:
    """Return the versions of unidex, Python and the packages that numbers depend on."""
    found = {"unidex": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Write the record of a run completely or not at all. It names its model by the hash of the manifest."""
    file = record_file(folder)
    content = {"format": FORMAT} | record | {"manifest": manifest_hash(folder)}
    write_text(file, json.dumps(content, indent=2) + "\n")


def record_file(folder: Path) -> Path:
    """Return the file of the record of a run.

    >>> record_file(Path("compared/runs/unidec-none-0")).name
    'unidec-none-0.run.json'
    """
    return folder.with_name(f"{folder.name}.run.json")


def read_record(folder: Path) -> dict[str, Any] | None:
    """Read the record of a run by its model folder; None if the run is not finished."""
    file = record_file(folder)
    if not file.exists():
        return None
    try:
        record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        missing = [key for key in _KEYS if key not in record]
        if record["format"] != FORMAT or missing:
            raise ValueError(f"it lacks {missing[0]}" if missing else f"format {record['format']}")
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise ModelError(
            f"{file}: the record of a run cannot be read ({error}); remove it and its model, and compare again"
        ) from None
    return record | {"folder": str(folder)}


def model_record(folder: Path) -> dict[str, Any]:
    """Read the record of any model folder; without a record, use its files, with None for unknown values.

    A model that was changed since the run, such as by `labels teach`, is not the one that was measured.
    """
    folder = folder.resolve() if folder.name in ("", "..") else folder
    found = read_record(folder)
    if found is not None and found["manifest"] == manifest_hash(folder):
        return found
    if not (folder / "config.toml").is_file():
        raise ModelError(f"{folder}: a model folder must have config.toml, but this one does not; is it a model?")
    config = read_saved(folder)
    try:
        metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise ModelError(f"{folder}: the model cannot be read ({error}); is it a model folder?") from None
    data = metrics.get("data", {})
    training = metrics.get("training", {})
    return {
        "folder": str(folder),
        "name": folder.resolve().name,
        "recipe": config.recipe or "own",
        "about": config.about,
        "augment": config.augment.method,
        "seed": None,
        "settings": [],
        "config": config.model_dump(),
        "data": {"name": data.get("name"), "num_train": data.get("num_train"), "fingerprint": None},
        "test": metrics.get("test"),
        "training": {"wall_seconds": training.get("seconds"), "steps": training.get("steps")},
        "prediction": {},
        "num_parameters": num_parameters(folder),
        "model_bytes": model_bytes(folder),
        "versions": {},
    }


def num_parameters(folder: Path) -> int:
    """Count the parameters in the files of weights and in the index, which has the classifiers and the clusters."""
    total = _num_in_index(folder)
    try:
        for file in folder.rglob("*.safetensors"):
            with safe_open(file, framework="numpy") as weights:
                sizes = {name: math.prod(weights.get_slice(name).get_shape()) for name in weights.keys()}  # noqa: SIM118
                total += sum(num_weights(name, size, weights.get_tensor) for name, size in sizes.items())
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{folder}: the weights cannot be read ({error}); copy the model again") from None
    return total


def _num_in_index(folder: Path) -> int:
    config = read_saved(folder)
    heads = config.heads
    if not heads.classifier or (folder / "classifier.safetensors").is_file():
        return 0  # before format 4, classifiers had a file of their own
    manifest = read_manifest(folder / "index")
    clusters = [load_array(file, (None, None), mapped=True).size for file in (folder / "index").glob("clusters_*.npy")]
    has_prior = config.predict.label_prior != 0 and not config.tree.levels
    bias = int(heads.classifier_bias != "none")
    # Both heads have as many numbers, but for the bias.
    columns = (int(manifest["dim"]) - has_prior - bias) // (2 if heads.dual else 1) + bias
    return int(manifest["num_ids"]) * columns + sum(clusters)


def model_bytes(folder: Path) -> int:
    """Return the size of a model folder without TensorBoard files."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return sum(file.stat().st_size for file in files if "tensorboard" not in file.relative_to(folder).parts)


def read_curve(folder: Path) -> list[dict[str, Any]]:
    """Read the log of a training; empty if there is none."""
    file = folder / "train.jsonl"
    if not file.exists():
        return []
    try:
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except ValueError as error:
        raise ModelError(f"{file}: the log of a training must be JSON lines, but: {error}; copy it again") from None

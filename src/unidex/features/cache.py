"""The feature cache: matrices of texts on disk, found by a fingerprint of everything they depend on.

A matrix is a folder named by its fingerprint: weights, ids and row ends as plain little-endian arrays, and a
manifest with their sizes and checksums. It is written beside its place and renamed into it, so that it is there whole
or not at all, and its checksums are compared before it is used.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.data.texts import Texts
from unidex.features import long_rows
from unidex.features.extractor import FeatureExtractor, as_csr
from unidex.storage.atomic import replace_folder, unfinished_folder

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
_DTYPES = {"weights": "<f4", "ids": "<i4", "ends": "<i8"}
_BATCH = 10_000


def cached_transform(features: FeatureExtractor, texts: Sequence[str], folder: Path) -> sparse.csr_array:
    """``features.transform(texts)``, mapped from a file of the folder, which is made where it is missing or damaged."""
    place = folder / fingerprint(features, texts)
    matrix = _read(place, len(texts), features.num_features)
    if matrix is not None:
        return matrix
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with unfinished_folder(place) as unfinished:
            _write(unfinished, features, texts)
            replace_folder(unfinished, place)
    except OSError as error:
        logger.warning("The features cannot be cached in %s (%s). They stay in memory.", place, error)
    matrix = _read(place, len(texts), features.num_features)
    # Another process may have replaced the folder, or the disk may fail: the caller gets the matrix in any case.
    return features.transform(texts) if matrix is None else matrix


def fingerprint(features: FeatureExtractor, texts: Sequence[str]) -> str:
    """A name for the matrix of these texts; it differs as soon as a text, a setting or the vocabulary differs."""
    digest = blake2b(features.fingerprint.encode(), digest_size=16)
    for lengths, block in _encoded(texts):
        # With the lengths, ["ab", "c"] is not ["a", "bc"].
        digest.update(lengths.astype("<i8", copy=False).data)
        digest.update(block)
    return digest.hexdigest()


def _encoded(texts: Sequence[str]) -> Iterator[tuple[NDArray[np.int64], bytes]]:
    """The bytes of each text and those of all, so many texts at a time."""
    if isinstance(texts, Texts):
        yield from texts.encoded_blocks(_BATCH)
        return
    source = iter(texts)
    while batch := list(islice(source, _BATCH)):
        encoded = [text.encode("utf-8", "surrogatepass") for text in batch]
        yield np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)), b"".join(encoded)


def _write(folder: Path, features: FeatureExtractor, texts: Sequence[str]) -> None:
    checksums = dict.fromkeys(_DTYPES, 0)
    sizes = dict.fromkeys(_DTYPES, 0)
    files = {name: (folder / name).open("wb") for name in _DTYPES}
    end = 0
    try:
        for rows in features.rows(texts):
            ends = end + np.cumsum(rows.counts)
            end = int(ends[-1])
            for name, array in (("weights", rows.weights), ("ids", rows.ids), ("ends", ends)):
                data = array.astype(_DTYPES[name], copy=False).tobytes()
                files[name].write(data)
                checksums[name] = zlib.crc32(data, checksums[name])
                sizes[name] += len(data)
    finally:
        for file in files.values():
            file.close()
    manifest = {"checksums": checksums, "sizes": sizes}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _read(place: Path, num_texts: int, num_features: int) -> sparse.csr_array | None:
    """The matrix of a folder, or None where there is none or it is not whole."""
    if not place.exists():
        return None
    try:
        manifest = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
        arrays = {name: _mapped(place / name, dtype, manifest) for name, dtype in _DTYPES.items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("The cached features in %s are damaged (%s). Computing them again.", place, error)
        return None
    ends = np.zeros(len(arrays["ends"]) + 1, dtype=np.int32 if len(arrays["ids"]) < long_rows.LONG_FROM else np.int64)
    ends[1:] = arrays["ends"]
    if len(ends) != num_texts + 1 or len(arrays["ids"]) != ends[-1] or len(arrays["weights"]) != ends[-1]:
        logger.warning("The cached features in %s do not fit the number of texts. Computing them again.", place)
        return None
    return as_csr(arrays["weights"], arrays["ids"], ends, num_features)


def _mapped(file: Path, dtype: str, manifest: dict[str, Any]) -> NDArray[Any]:
    size = manifest["sizes"][file.name]
    if file.stat().st_size != size:
        raise ValueError(f"{file.name} has {file.stat().st_size} bytes instead of {size}")
    if size == 0:
        return np.empty(0, dtype=dtype)  # Nothing cannot be mapped.
    array = np.memmap(file, dtype=dtype, mode="r")
    checksum = 0
    for start in range(0, len(array), 1 << 22):
        checksum = zlib.crc32(array[start : start + (1 << 22)].data, checksum)
    if checksum != manifest["checksums"][file.name]:
        raise ValueError(f"the checksum of {file.name} is wrong")
    return array

"""LightGBM by its C interface: the fit of trees, and the share of each feature in their sums.

The Python package of LightGBM imports pandas, scikit-learn and pyarrow wherever they are installed: 1.5 CPU seconds and
130 MB. Its library needs none of them.

Shapes: P pairs, F features.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FLOAT32 = 0
_SHARES = 3  # the kind of prediction
_NAMES = ("lib_lightgbm.so", "lib_lightgbm.dylib", "lib_lightgbm.dll")


@cache
def _library() -> ctypes.CDLL:
    """The library of the installed package, loaded once."""
    package = importlib.util.find_spec("lightgbm")
    folders = [] if package is None else [Path(folder) for folder in package.submodule_search_locations or ()]
    for file in (folder / place / name for folder in folders for place in ("lib", "bin", "..") for name in _NAMES):
        if file.is_file():
            found = ctypes.CDLL(str(file))
            found.LGBM_GetLastError.restype = ctypes.c_char_p
            return found
    raise ImportError("the learned ranker needs LightGBM, but its library is not installed: pip install lightgbm")


def _call(name: str, *arguments: Any) -> None:
    if getattr(_library(), name)(*arguments):
        raise RuntimeError(f"{name}: {_library().LGBM_GetLastError().decode('utf-8', 'replace')}")


def _pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class _Handle(ctypes.c_void_p):
    """What the library made and must free."""

    def __init__(self, free: str) -> None:
        super().__init__()
        self._free = free

    def __del__(self) -> None:
        # At the end of the interpreter the module's names may be gone, and the process frees all.
        if self.value is not None and _library is not None:
            getattr(_library(), self._free)(self)


def _settings(values: Mapping[str, Any]) -> bytes:
    texts = {name: ",".join(map(str, value)) if isinstance(value, list) else value for name, value in values.items()}
    return " ".join(f"{name}={text}" for name, text in texts.items()).encode()


def fit_trees(
    columns_PF: NDArray[np.float32],
    hits_P: NDArray[np.bool_],
    weights_P: NDArray[np.floating[Any]],
    settings: Mapping[str, Any],
    num_trees: int,
) -> str:
    """The text of a model that tells hits from other pairs."""
    text = _settings({**settings, "num_iterations": num_trees})
    columns_FP = np.ascontiguousarray(columns_PF.T, dtype=np.float32)
    data, booster = _Handle("LGBM_DatasetFree"), _Handle("LGBM_BoosterFree")
    shape = ctypes.c_int32(columns_FP.shape[1]), ctypes.c_int32(columns_FP.shape[0])
    is_row_major = ctypes.c_int(0)
    _call(
        "LGBM_DatasetCreateFromMat",
        *(_pointer(columns_FP), ctypes.c_int(_FLOAT32), *shape, is_row_major, text, None, ctypes.byref(data)),
    )
    for name, values in ((b"label", hits_P), (b"weight", weights_P)):
        numbers = np.ascontiguousarray(values, dtype=np.float32)
        _call("LGBM_DatasetSetField", data, name, _pointer(numbers), ctypes.c_int(len(numbers)), ctypes.c_int(_FLOAT32))
    _call("LGBM_BoosterCreate", data, text, ctypes.byref(booster))
    is_finished = ctypes.c_int(0)
    for _ in range(num_trees):
        _call("LGBM_BoosterUpdateOneIter", booster, ctypes.byref(is_finished))
        if is_finished.value:
            break
    return _text_of(booster)


def _text_of(booster: _Handle) -> str:
    size, room = ctypes.c_int64(0), ctypes.create_string_buffer(1 << 20)
    while True:
        length = ctypes.c_int64(len(room))
        everything = ctypes.c_int(0), ctypes.c_int(-1), ctypes.c_int(0)
        _call("LGBM_BoosterSaveModelToString", booster, *everything, length, ctypes.byref(size), room)
        if size.value <= len(room):
            return room.value.decode()
        room = ctypes.create_string_buffer(size.value)


class Trees:
    """Trees that the library has read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._booster = _Handle("LGBM_BoosterFree")
        number = ctypes.c_int(0)
        _call("LGBM_BoosterLoadModelFromString", text.encode(), ctypes.byref(number), ctypes.byref(self._booster))

    def __reduce__(self) -> tuple[type[Trees], tuple[str]]:
        return Trees, (self._text,)

    def shares(self, columns_PF: NDArray[np.float32]) -> NDArray[np.float64]:
        """P x (F + 1): the share of each feature in the sum of the trees (SHAP values), and the base."""
        num_pairs, num_features = columns_PF.shape
        rows_PF = np.ascontiguousarray(columns_PF, dtype=np.float32)
        found, length = np.empty((num_pairs, num_features + 1)), ctypes.c_int64(0)
        shape = ctypes.c_int32(num_pairs), ctypes.c_int32(num_features), ctypes.c_int(1)
        kind = ctypes.c_int(_SHARES), ctypes.c_int(0), ctypes.c_int(-1), b"num_threads=1"
        arguments = _pointer(rows_PF), ctypes.c_int(_FLOAT32), *shape, *kind, ctypes.byref(length), _pointer(found)
        if num_pairs:
            _call("LGBM_BoosterPredictForMat", self._booster, *arguments)
        return found

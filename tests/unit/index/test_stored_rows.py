"""Stored vectors of labels that no training makes are refused with the name of their file."""

import numpy as np
import pytest

from unidex.errors import ModelError
from unidex.index import load
from unidex.index.exact import ExactIndex
from unidex.index.stored_rows import read_rows, write_rows
from unidex.storage.eight_bits import rounded
from unidex.storage.small_numbers import load_numbers, save_numbers


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 3e38, -1e16])
def test_a_number_that_no_vector_has_is_refused(tmp_path, number):
    vectors = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    ExactIndex.build(vectors).save(tmp_path / "index")
    assert np.array_equal(load(tmp_path / "index").vectors(np.arange(40)), vectors)
    vectors[33, 2] = number
    np.save(tmp_path / "index" / "vectors.npy", vectors)
    with pytest.raises(ModelError, match=r"vectors\.npy must hold numbers of vectors, .*; copy the model again"):
        load(tmp_path / "index")


@pytest.mark.parametrize("number", [np.nan, 3e38])
def test_a_scale_that_no_vector_has_is_refused(tmp_path, number):
    rows = rounded(np.random.default_rng(0).normal(size=(9, 64)).astype(np.float32))
    write_rows(tmp_path, rows.shape, [rows])
    assert np.array_equal(read_rows(tmp_path, rows.shape), rows)
    scales = load_numbers(tmp_path / "vectors_scales", (None, None), np.float32)
    scales[4, 0] = number
    save_numbers(tmp_path / "vectors_scales", scales)
    with pytest.raises(ModelError, match=r"vectors_scales must hold numbers"):
        read_rows(tmp_path, rows.shape)

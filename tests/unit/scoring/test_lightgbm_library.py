"""LightGBM by its C interface gives what its Python package gives, without its imports."""

import pickle
import subprocess
import sys

import lightgbm
import numpy as np
import pytest

from unidex.scoring.boosted_trees import _SETTINGS
from unidex.scoring.lightgbm_library import Trees, fit_trees


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(9, 3000)).astype(np.float32)
    hits = columns[0] + columns[1] * columns[2] > rng.normal(size=3000)
    return columns.T, hits, np.where(hits, 1 + rng.random(3000), 1.0)


def without_settings(text):
    """Both list their settings at the end, in an order of their own."""
    return text.split("\nparameters:")[0]


def test_the_trees_are_the_same(pairs):
    columns, hits, weights = pairs
    settings = _SETTINGS | {"monotone_constraints": [1, 0, -1, 0, 0, 0, 0, 0, 0]}
    plain = lightgbm.train(settings, lightgbm.Dataset(columns, hits, weight=weights), 12)
    text = fit_trees(columns, hits, weights, settings, 12)
    assert without_settings(text) == without_settings(plain.model_to_string())
    shares = plain.predict(columns[:50], pred_contrib=True, num_threads=1)
    trees = Trees(text)
    np.testing.assert_array_equal(trees.shares(columns[:50]), shares)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(trees)).shares(columns[:50]), shares)
    assert trees.shares(columns[:0]).shape == (0, 10)


def test_a_long_text_is_whole(pairs):
    columns, hits, weights = pairs
    text = fit_trees(columns, hits, weights, {**_SETTINGS, "num_leaves": 63, "min_data_in_leaf": 5}, 400)
    assert len(text) > 1 << 20
    assert text.count("\nTree=") == 400


def test_an_error_of_the_library_is_raised(pairs):
    with pytest.raises(RuntimeError, match="LGBM_DatasetCreateFromMat"):
        fit_trees(*pairs, {"objective": "binary", "max_bin": 0, "verbose": -1}, 1)
    with pytest.raises(RuntimeError, match="LGBM_BoosterLoadModelFromString"):
        Trees("no trees")


def test_a_fit_imports_none_of_its_python_package():
    words = (
        "import sys; import numpy as np; from unidex.scoring.lightgbm_library import fit_trees\n"
        "fit_trees(np.eye(40, dtype=np.float32), np.arange(40) > 9, np.ones(40), {'verbose': -1}, 1)\n"
        "print({'lightgbm', 'pandas', 'sklearn', 'pyarrow'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"

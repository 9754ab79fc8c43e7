"""The answer for a text does not depend on the texts beside it."""

import numpy as np
import pytest

from helpers.synthetic import QUICK, topics
from unidex.index.exact import search_exact
from unidex.nn.array_network import Linear
from unidex.verbs.train import train

DATA = topics()


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [("auto", []), ("auto", ["encoder.residual=true"]), ("unidec", ["predict.knn=0.1", "predict.choose_knn=false"])],
    ids=["auto", "auto with a layer", "unidec"],
)
def test_texts_together_are_answered_as_each_alone_to_the_last_bit(recipe, changes, tmp_path):
    model = train(DATA, recipe, settings=[*QUICK, "train.epochs=1", *changes], out=tmp_path / "model")
    texts = [*DATA.test.texts, "nothing of this is known", ""]
    for k in (1, 5):
        alone = [model.predict([text], k) for text in texts]
        for repeats in (1, 3):
            together = model.predict(texts * repeats, k)
            assert np.array_equal(together.ids, np.concatenate([one.ids for one in alone] * repeats))
            assert np.array_equal(together.scores, np.concatenate([one.scores for one in alone] * repeats))


@pytest.mark.parametrize("dim", [3, 32, 100])
def test_a_layer_has_the_same_numbers_for_a_row_alone(dim):
    rng = np.random.default_rng(0)
    layer = Linear(*(rng.standard_normal(shape).astype(np.float32) for shape in ((dim, dim), dim)))
    rows = rng.standard_normal((70, dim)).astype(np.float32)
    found = layer(rows)
    assert np.array_equal(found, np.concatenate([layer(rows[[row]]) for row in range(70)]))
    np.testing.assert_allclose(found, rows.astype(float) @ layer.weight.T + layer.bias, atol=1e-4)
    assert layer(rows[:0]).shape == (0, dim)


@pytest.mark.parametrize("num_labels", [7, 100, 3000])
@pytest.mark.parametrize("k", [1, 5])
def test_a_search_that_many_labels_tie_for_gives_the_scores_of_a_text_alone(num_labels, k):
    rng = np.random.default_rng(0)
    # Labels that are one but for the last bits, and texts near them.
    centre = rng.standard_normal(37, dtype=np.float32)
    labels = centre + np.float32(1e-7) * rng.standard_normal((num_labels, 37), dtype=np.float32)
    texts = centre + np.float32(0.3) * rng.standard_normal((70, 37), dtype=np.float32)
    together = search_exact(texts, labels, k)
    alone = [search_exact(texts[[row]], labels, k) for row in range(70)]
    assert np.array_equal(together.ids, np.concatenate([one.ids for one in alone]))
    assert np.array_equal(together.scores, np.concatenate([one.scores for one in alone]))

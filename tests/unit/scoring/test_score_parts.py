"""The score of a model, against the formula over all labels: both heads, the nearest train texts, the frequency."""

import numpy as np
import pytest
import torch
from scipy import sparse

from helpers.synthetic import QUICK, topics
from unidex.errors import DataError, ModelError
from unidex.model.model import Model
from unidex.topk import TopK
from unidex.verbs.train import train

DATA = topics(labels_per_text=3)
TEXTS = list(DATA.test.texts)
WEIGHTS = {"fusion": 0.3, "knn": 0.4, "label_prior": 0.05, "knn_texts": 8, "knn_temperature": 0.1}
KINDS = ["exact", "hnsw", "pq"]


@pytest.fixture(scope="module")
def trained():
    return train(DATA, "unidec", settings=[*QUICK, "train.epochs=2", "heads.shared_encoder=false"])


def weighed(trained, **changes):
    """The trained network as a model of its own, with other weights and perhaps another index."""
    predict = trained.config.predict.model_copy(update=WEIGHTS | changes)
    network = trained.network
    # Labels that another test has added have grown the table.
    network.classifiers.weight = network.classifiers.weight[: DATA.num_labels].clone()
    config = trained.config.model_copy(update={"predict": predict})
    prepared = network.encoder.prepare(DATA.labels.texts)
    pairs = (network.encoder.prepare(DATA.train.texts), DATA.train.positives)
    return Model.build(config, network, trained.labels, prepared, {}, pairs)


def slow_scores(model, texts, known=()):
    """Text by label in double precision, and nothing that the model has stored; ``known`` are remembered pairs."""
    network, predict = model.network, model.config.predict

    def of(strings):
        vectors = network.text_vectors(network.encoder.prepare(strings))
        return vectors.dual.double().numpy(), vectors.classifier.double().numpy()

    classifiers = torch.nn.functional.normalize(network.classifiers.weight, dim=1).double().numpy()
    (dual, classifier), (label_dual, _) = of(texts), of(model.labels.texts)
    scores = predict.fusion * dual @ label_dual.T + (1 - predict.fusion) * classifier @ classifiers.T
    scores += predict.label_prior * np.log(1 + model.labels.frequencies)
    # Train texts are stored as float16, of vectors by arrays: those of torch differ by 1e-7, enough to round a number
    # to the next float16, which moves a score by more than 2e-5 where the weight is 3.
    (vectors,) = model.vector_blocks([*DATA.train.texts, *(text for text, _ in known)], "encoding")
    stored = np.concatenate([vectors.dual, vectors.classifier], axis=1) / 2
    positives = np.zeros((len(stored), len(model.labels)))
    positives[: len(DATA.train), : DATA.num_labels] = DATA.train.positives.toarray()
    for place, (_, label) in enumerate(known):
        positives[len(DATA.train) + place, label] = 1
    similarity = np.concatenate([dual, classifier], axis=1) @ stored.astype(np.float16).astype(float).T
    for row, values in enumerate(similarity):
        nearest = np.argsort(-values, kind="stable")[: predict.knn_texts]
        powers = np.exp((values[nearest] - values[nearest].max()) / predict.knn_temperature)
        scores[row] += predict.knn * (powers / powers.sum()) @ positives[nearest]
    return scores


def assert_formula(model, texts=TEXTS, hidden=(), known=(), **limits):
    scores = slow_scores(model, texts, known)
    hidden = [*hidden, *np.flatnonzero(model.labels.removed)]
    scores[:, hidden] = -np.inf
    wanted = TopK.rank(np.tile(np.arange(scores.shape[1]), (len(texts), 1)), scores)
    for k in (1, 4, 40):
        found = model.predict(texts, k, **limits)
        np.testing.assert_allclose(found.scores, wanted.first(k).scores, atol=2e-5)
        # Equal scores (equal texts of different labels) may stand in either order, and no label stands twice.
        filled = found.ids >= 0
        rows = np.nonzero(filled)[0]
        np.testing.assert_allclose(found.scores[filled], scores[rows, found.ids[filled]], atol=2e-5)
        assert all(len(set(row[row >= 0].tolist())) == (row >= 0).sum() for row in found.ids)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "changes",
    [{}, {"label_prior": 0.0}, {"knn": 0.0}, {"knn": 0.0, "label_prior": -0.3}, {"fusion": 0.98, "knn": 2.0}],
    ids=str,
)
def test_predictions_are_the_formula(trained, kind, changes):
    model = weighed(trained, index=kind, **changes)
    assert (model.scorer.knn is None) == (model.config.predict.knn == 0)
    assert_formula(model)
    assert_formula(model, [TEXTS[3]])


def test_each_weight_counts(trained):
    """No weight can be lost unseen: without it the best label of some text is another."""
    whole = weighed(trained).predict(TEXTS, 5)
    for name in ("knn", "label_prior"):
        assert (weighed(trained, **{name: 0.0}).predict(TEXTS, 5).ids != whole.ids).any()


@pytest.mark.parametrize("kind", KINDS)
def test_allowed_and_forbidden_labels_hold_for_the_knn_part(trained, kind):
    model = weighed(trained, index=kind, knn=3.0)
    best = model.predict(TEXTS, 1).ids[:, 0]
    assert_formula(model, hidden=np.unique(best[:20]), forbidden=np.unique(best[:20]))
    allowed = np.array([1, 2, 5, 20])
    assert_formula(model, hidden=np.setdiff1d(np.arange(24), allowed), allowed=allowed)
    model.remove_labels([int(best[0]), 7])
    assert_formula(model)
    assert_formula(model, hidden=[3], forbidden=[3])


@pytest.mark.parametrize("kind", KINDS)
def test_added_and_removed_labels_keep_to_the_formula_and_so_does_a_loaded_model(trained, kind, tmp_path):
    model = weighed(trained, index=kind)
    new = [TEXTS[0], "w0a w60i"]
    assert model.add_labels(new, ["x", "y"]).tolist() == [24, 25]
    assert_formula(model)
    assert_formula(model, new)
    model.remove_labels([25, 4])
    assert_formula(model, new)
    before = model.predict(TEXTS, 6)
    model.save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model")
    after = loaded.predict(TEXTS, 6)
    assert np.array_equal(after.ids, before.ids)
    assert np.array_equal(after.scores, before.scores)
    assert_formula(loaded)


@pytest.mark.parametrize("mode", ["dual", "classifier"])
def test_one_head_alone_scores_its_cosine_without_knn_and_prior(trained, mode):
    model = weighed(trained)
    share = {"dual": 0.3, "classifier": 0.7}[mode]
    heads = {name: model.predict(TEXTS, 24, mode=name) for name in ("dual", "classifier")}
    queries = getattr(model.network.text_vectors(model.network.encoder.prepare(TEXTS)), mode)
    labels = getattr(model.network.label_vectors(model.network.encoder.prepare(DATA.labels.texts)), mode)
    wanted = np.take_along_axis((queries @ labels.T).numpy(), heads[mode].ids, axis=1)
    np.testing.assert_allclose(heads[mode].scores, share * wanted, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_remembered_pair_counts_at_once_and_after_loading(trained, kind, tmp_path):
    model = weighed(trained, index=kind)
    text = "w0a w5f w70s"
    (label,) = model.add_labels(["nothing of the kind"], ["late"])
    before = slow_scores(model, [text])[0, label]
    model.remember([text], sparse.csr_array(([1.0], [label], [0, 1]), shape=(1, 25)))
    assert_formula(model, [text, *TEXTS], known=[(text, label)])
    gain = slow_scores(model, [text], [(text, label)])[0, label] - before
    # The text itself is its nearest neighbour: no other has a greater share of the weight of 0.4.
    assert 0.4 / 8 <= gain <= 0.4
    model.save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model")
    assert_formula(loaded, [text, *TEXTS], known=[(text, label)])
    loaded.remember([TEXTS[1]], sparse.csr_array(([1.0], [3], [0, 1]), shape=(1, 25)))
    assert_formula(loaded, [text, *TEXTS], known=[(text, label), (TEXTS[1], 3)])


def test_what_cannot_be_remembered_is_refused_and_changes_nothing(trained):
    model = weighed(trained)
    with pytest.raises(DataError, match="must be 2 texts x 24 labels, but are 1 x 24"):
        model.remember(["a", "b"], sparse.csr_array((1, 24)))
    with pytest.raises(DataError, match="must be 1 texts x 24 labels, but are 1 x 25"):
        model.remember(["a"], sparse.csr_array((1, 25)))
    assert model.scorer.knn.num_texts == len(DATA.train)
    with pytest.raises(ModelError, match=r"those of this one have none; train it with .*predict\.knn"):
        weighed(trained, knn=0.0).remember(["a"], sparse.csr_array((1, 24)))


@pytest.mark.parametrize("kind", KINDS)
def test_every_index_gives_the_vectors_of_its_labels(trained, kind):
    model = weighed(trained, index=kind)
    model.add_labels(["w0a w60i"])
    model.remove_labels([2])
    network = model.network
    vectors = network.label_vectors(network.encoder.prepare(model.labels.texts))
    ids = np.array([24, 0, 7, 7])
    np.testing.assert_allclose(
        model.scorer.index.vectors(ids), model.scorer.layout.rows(vectors, model.labels.frequencies)[ids], atol=1e-6
    )
    assert model.scorer.index.vectors(np.empty(0, dtype=np.int64)).shape == (0, model.scorer.index.dim)

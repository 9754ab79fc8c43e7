"""Reasons: sums that must hold, places in the text, known answers, kept texts, what comes together, bad input."""

import json
import math
import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy import sparse

from helpers.command import call
from helpers.naive_features import EVERYTHING, LABELS, TEXTS, naive_features, settings_with, some_settings, some_text
from helpers.synthetic import topics
from unidex.cli.explain import _Page, marked_pieces
from unidex.config import Encoder
from unidex.config.recipes import load
from unidex.encoders.bag import BagEncoder
from unidex.encoders.registry import build_encoder
from unidex.errors import DataError, ModelError
from unidex.features.extractor import FeatureExtractor
from unidex.features.word_places import merged
from unidex.features.word_strings import placed_words, words_in
from unidex.features.words import normal_form
from unidex.model.attribution import attribute, feature_scores
from unidex.model.explanation import explain
from unidex.model.label_set import LabelSet
from unidex.model.model import Model
from unidex.nn.assembly import build_network
from unidex.nn.heads import ClassifierHead, DualHead
from unidex.scoring import knn as neighbours
from unidex.scoring import nearest_texts as nearest
from unidex.scoring.calibration import Calibration
from unidex.scoring.knn import KnnPart
from unidex.scoring.label_texts import LabelTexts
from unidex.scoring.nearest_texts import NearestTexts
from unidex.scoring.snippets import Snippets

DATA = topics(num_labels=12, num_train=90, num_test=6, labels_per_text=3)
# Words that were never seen go into buckets; those of the first are words of labels.
ASKED = [
    "w0a W2c, w2c getW0a_w5f!",
    "nothing of this\nwas ever seen",
    "",
    "...",
    "W3d \ufb01le Blu\u0308cher \u00bd w7h",
]


def random_model(recipe, *settings, seed=0, data=DATA, weights=None):
    """A model that has learned nothing: all its numbers are drawn, biases too, so that every part of a sum counts."""
    predict = {"predict.fusion": 0.3, "predict.knn": 0.4, "predict.label_prior": 0.05, "predict.knn_texts": 8}
    predict |= {"predict.snippet_length": 20, "predict.rank": "sum"} | (weights or {})
    given_settings = ["encoder.dim=16", "features.min_df=1", "heads.dim=12"]
    config = load(recipe, [*given_settings, *(f"{key}={value}" for key, value in predict.items()), *settings])
    torch.manual_seed(seed)
    encoder = build_encoder(config, data.train.texts, data.labels.texts)
    network = build_network(config, encoder, data.num_labels)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    if network.classifier_encoder is not None:
        network.classifier_encoder.weigh(torch.rand(encoder.features.num_features))
    labels = LabelSet.of(data)
    train = (encoder.prepare(data.train.texts), data.train.positives)
    return Model.build(config, network, labels, encoder.prepare(data.labels.texts), {}, train, data.train.texts)


def total(reason):
    return sum(token.score for token in reason.tokens) + reason.rest


def of_heads(reason):
    return reason.parts.get("dual", 0.0) + reason.parts.get("classifier", 0.0)


RECIPES = [
    ("auto",),
    ("unidec",),
    ("depsl",),
    ("renee",),
    ("dexml",),
    ("unidec", "heads.projection=true", "features.chars=true", "features.subwords=true"),
    ("unidec", "heads.projection=true", "encoder.residual=false", "features.num_buckets=0"),
    ("dexml", "heads.dual_normalised=false", "heads.projection=true", "predict.index=hnsw"),
    ("renee", "heads.projection=true", "predict.label_prior=0.0", "predict.knn=0.0"),
]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: "-".join(recipe))
def test_parts_sum_to_the_score_and_words_to_the_scores_of_the_heads(recipe):
    model = random_model(recipe[0], *recipe[1:])
    heads = [name for name in ("dual", "classifier") if getattr(model.network, name) is not None]
    predict = model.config.predict
    others = ["knn"] * (predict.knn > 0) + ["label_prior"] * (predict.label_prior != 0)
    for mode in ("both", *heads):
        for text in ASKED:
            best = model.predict([text], 4, mode=mode)
            reasons = explain(model, text, k=4, mode=mode)
            assert [reason.id for reason in reasons] == best.ids[0].tolist()
            for reason, score in zip(reasons, best.scores[0].tolist(), strict=True):
                assert list(reason.parts) == ([*heads, *others] if mode == "both" else [mode])
                assert reason.score == pytest.approx(sum(reason.parts.values()), abs=1e-9)
                assert reason.score == pytest.approx(score, abs=1e-5)
                assert total(reason) == pytest.approx(of_heads(reason), abs=1e-5)
                shown = reason.as_dict()
                assert sum(shown["parts"].values()) == pytest.approx(shown["score"], abs=1e-5)
                said = sum(token["score"] for token in shown["tokens"]) + shown["rest"]
                assert said == pytest.approx(of_heads(reason), abs=1e-5)


def test_only_biases_leave_a_part_that_no_word_explains():
    (plain, *_), (biased, *_) = (explain(random_model(name), ASKED[0]) for name in ("auto", "unidec"))
    assert plain.rest == pytest.approx(0, abs=1e-12)
    assert abs(biased.rest) > 0.01


@given(st.text(max_size=60))
@hypothesis_settings(deadline=None, max_examples=40)
def test_sums_and_places_hold_for_any_text(text):
    for model in MODELS:
        for reason in explain(model, text, k=2):
            assert total(reason) == pytest.approx(of_heads(reason), abs=1e-5)
            assert all(0 <= token.start < token.end <= len(text) for token in reason.tokens)
            assert all(token.token == text[token.start : token.end] for token in reason.tokens)
            assert all(one.end <= other.start for one, other in pairwise(reason.tokens))


MODELS = [random_model("auto"), random_model("unidec", "features.chars=true", "features.subwords=true")]


# Known answers.


def two_words(**settings):
    """An encoder of the words red and hat alone: rows (1, 0) and (0, 1), and a text of each has equal weights."""
    features = FeatureExtractor.fit(["red hat"], [], settings_with(min_df=1, **{"bigrams": False} | settings))
    encoder = BagEncoder(features, Encoder(dim=2, residual=False))
    rows = {"red": [1.0, 0.0], "hat": [0.0, 1.0], "red hat": [1.0, 1.0]}
    encoder.table.weight = torch.tensor([rows[features.name(feature)] for feature in range(features.num_features)])
    return encoder


def by_name(encoder, values):
    ids = encoder.features.transform_one("red hat")[0].tolist()
    return {encoder.features.name(feature): value for feature, value in zip(ids, values.tolist(), strict=True)}


def test_a_feature_contributes_weight_times_row_times_label_over_length():
    encoder = two_words()
    ids, weights = encoder.features.transform_one("red hat")
    scores, rest = feature_scores(encoder, DualHead(2, 2, projection=False), ids, weights, np.array([[0.6, 0.8]]))
    assert by_name(encoder, scores[0]) == pytest.approx({"red": 0.6 / math.sqrt(2), "hat": 0.8 / math.sqrt(2)})
    assert rest.tolist() == [0]
    # A weight of its own changes what a feature brings, and the length of the whole: (1, 3) / sqrt(10).
    encoder.weigh(torch.tensor([1.0 if encoder.features.name(feature) == "red" else 3.0 for feature in range(2)]))
    scores, _ = feature_scores(encoder, ClassifierHead(2, 2, projection=False), ids, weights, np.array([[1.0, 1.0]]))
    assert by_name(encoder, scores[0]) == pytest.approx({"red": 1 / math.sqrt(10), "hat": 3 / math.sqrt(10)})


def test_attribution_through_a_residual_layer_follows_its_open_units():
    encoder = two_words()
    encoder.layer = torch.nn.Linear(2, 2)
    with torch.no_grad():
        # At (1, 1) / sqrt(2): the first number is 2 / sqrt(2) + 0.5, open; the second -1 / sqrt(2) + 0.1, shut.
        encoder.layer.weight.copy_(torch.tensor([[0.0, 2.0], [-1.0, 0.0]]))
        encoder.layer.bias.copy_(torch.tensor([0.5, 0.1]))
    ids, weights = encoder.features.transform_one("red hat")
    head = ClassifierHead(2, 2, projection=False, searched="plain")
    scores, rest = feature_scores(encoder, head, ids, weights, np.array([[1.0, 10.0]]))
    # The vector is (1 + 2 + 0.5 sqrt(2), 1) / sqrt(2): red brings 1 to the first number, hat brings 2 and the second.
    assert by_name(encoder, scores[0]) == pytest.approx({"red": 1 / math.sqrt(2), "hat": (2 + 10) / math.sqrt(2)})
    assert rest.tolist() == pytest.approx([0.5])


def test_attribution_through_a_projection_uses_the_slope_of_each_unit():
    encoder = two_words()
    head = DualHead(2, 1, normalised=False)
    with torch.no_grad():
        head.linear.weight.copy_(torch.tensor([[1.0, 2.0]]))
        head.linear.bias.copy_(torch.tensor([0.5]))
    ids, weights = encoder.features.transform_one("red hat")
    scores, rest = feature_scores(encoder, head.eval(), ids, weights, np.array([[4.0]]))
    before = 3 / math.sqrt(2) + 0.5
    slope = 4 * math.tanh(before) / before
    assert by_name(encoder, scores[0]) == pytest.approx({"red": slope / math.sqrt(2), "hat": 2 * slope / math.sqrt(2)})
    assert rest.tolist() == pytest.approx([0.5 * slope])


def network_of(encoder, head="dual"):
    dual = DualHead(2, 2, projection=False) if head == "dual" else None
    from unidex.nn.network import Network

    return Network(encoder, dual, None, None, temperature=1.0).eval()


def test_repeated_words_share_and_a_bigram_is_halved():
    found = attribute(network_of(two_words()), "red HAT, red", np.array([[1.0, 0.0]], dtype=np.float32), None)
    assert found.starts.tolist() == [0, 4, 9]
    assert found.ends.tolist() == [3, 7, 12]
    assert found.scores[0, 0] == found.scores[0, 2] > 0
    assert found.scores[0, 1] == 0
    # Three features of one weight: the bigram's row (1, 1) brings as much as both words, and half of it to either.
    found = attribute(network_of(two_words(bigrams=True)), "red hat", np.array([[0.0, 1.0]], dtype=np.float32), None)
    length = math.hypot(2, 2)
    assert found.scores[0].tolist() == pytest.approx([0.5 / length, 1.5 / length])
    assert found.rest.tolist() == pytest.approx([0])


def test_features_without_a_word_are_left_out_and_parts_lie_in_their_word():
    encoder = two_words(parts=True)
    found = attribute(network_of(encoder), "old redHat is", np.array([[1.0, 1.0]], dtype=np.float32), None)
    assert (found.starts.tolist(), found.ends.tolist()) == ([4], [10])
    assert found.scores[0].tolist() == pytest.approx([math.sqrt(2)])


# Places.

odd_text = st.text(
    alphabet="aB2_ .\u00bd\ufb01\u0308\u0301\uff76\uff9e\u1112\u1161\u11ab\u09c7\u09be\u0f71\u0f72", max_size=14
)


@given(st.one_of(some_text, odd_text))
@hypothesis_settings(deadline=None, max_examples=300)
def test_words_have_their_place_in_the_text(text):
    placed = placed_words(text)
    assert [word for word, _, _ in placed] == words_in(text)
    for word, start, end in placed:
        assert 0 <= start < end <= len(text)
        assert word in normal_form(text[start:end])
    for (_, start, end), (_, next_start, next_end) in pairwise(placed):
        assert start <= next_start
        assert end <= next_end


@given(some_text, some_settings)
@hypothesis_settings(deadline=None, max_examples=100)
def test_placed_features_are_those_of_the_row_as_often_as_they_occur(text, settings):
    settings = settings.model_copy(update={"min_df": 1})
    features = FeatureExtractor.fit([*TEXTS, text], LABELS, settings)
    placed = features.placed(text)
    assert np.unique(placed.features).tolist() == features.transform([text]).indices.tolist()
    counts = Counter()
    for feature, share in zip(placed.features.tolist(), placed.shares.tolist(), strict=True):
        counts[features.name(feature)] += share
    assert counts == Counter(name for _, name in naive_features(text, settings))


@given(some_text)
@hypothesis_settings(deadline=None, max_examples=60)
def test_placed_features_are_those_of_the_row_with_subwords_and_buckets(text):
    placed = EVERY.placed(text)
    assert np.unique(placed.features).tolist() == EVERY.transform([text]).indices.tolist()
    is_placed = placed.starts >= 0
    assert (placed.ends[is_placed] <= len(text)).all()
    assert (placed.starts[is_placed] < placed.ends[is_placed]).all()
    for start, end in zip(placed.starts[is_placed].tolist(), placed.ends[is_placed].tolist(), strict=True):
        assert text[start:end] == text[start:end].strip()


EVERY = FeatureExtractor.fit(TEXTS, LABELS, EVERYTHING)


def test_places_are_right_where_normalisation_splits_or_joins_characters():
    assert placed_words("\u00bd cup") == [("1", 0, 1), ("2", 0, 1), ("cup", 2, 5)]
    assert placed_words("Blu\u0308cher, \ufb01le") == [("Bl\u00fccher", 0, 8), ("file", 10, 13)]
    assert placed_words("x \uff76\uff9e y") == [("x", 0, 1), ("\u30ac", 2, 4), ("y", 5, 6)]
    assert placed_words("x \u1112\u1161\u11ab y") == [("x", 0, 1), ("\ud55c", 2, 5), ("y", 6, 7)]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6)), max_size=12))
def test_merged_ranges_cover_the_same_characters_and_do_not_overlap(ranges):
    starts = np.array([start for start, _ in ranges], dtype=np.int64)
    ends = np.array([start + length for start, length in ranges], dtype=np.int64)
    first, last = merged(starts, ends)
    assert {at for s, e in zip(starts, ends, strict=True) for at in range(s, e)} == {
        at for s, e in zip(first, last, strict=True) for at in range(s, e)
    }
    assert (first[1:] >= last[:-1]).all()
    # Ranges that only touch stay apart: they are two words.
    for s, e in zip(starts, ends, strict=True):
        assert ((first <= s) & (e <= last)).sum() == 1
    edges = {*starts.tolist()}
    assert set(first.tolist()) <= edges


# Transformers.

transformers_vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "blue", "shoe", "hat", "##s", "a", "of"]


@pytest.fixture(scope="module", params=["mean", "cls"])
def transformer_model(tmp_path_factory, request):
    """A model around a BERT of one layer with random weights."""
    transformers = pytest.importorskip("transformers", reason="the transformers extra is not installed")
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "vocab.txt").write_text("\n".join(transformers_vocabulary) + "\n", encoding="utf-8")
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    shape = transformers.BertConfig(
        vocab_size=len(transformers_vocabulary), hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=40, initializer_range=0.5,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.BertModel(shape).save_pretrained(folder)
    settings = [f"encoder.path={folder}", "encoder.max_length=8", f"encoder.pooling={request.param}"]
    return random_model("unidec", "encoder.kind=transformer", *settings)


@pytest.mark.parametrize("mode", ["both", "dual", "classifier"])
def test_a_transformer_is_explained_by_gradient_times_input(transformer_model, mode):
    model, text = transformer_model, "Red shoes, of a hat"
    reasons = explain(model, text, k=3, mode=mode)
    assert [reason.id for reason in reasons] == model.predict([text], 3, mode=mode).ids[0].tolist()
    encoder, network = model.network.encoder, model.network
    ids = torch.from_numpy(encoder.prepare([text]).padded(0)[0])
    embedded = encoder.model.get_input_embeddings()(ids).detach()
    # [CLS] red shoe ##s , of a [SEP]: the hat is beyond the 8 tokens that are read, and the comma is [UNK].
    assert ids.shape[1] == 8
    vectors = torch.from_numpy(model.scorer.index.vectors(np.array([reason.id for reason in reasons])))

    def scores(scale_T):
        hidden = encoder.model(inputs_embeds=embedded * scale_T[None, :, None]).last_hidden_state
        encoded = hidden[:, 0] if encoder.settings.pooling == "cls" else hidden.mean(dim=1)
        dual, classifier = network.dual(encoded)[0], network.classifier.as_searched(network.classifier(encoded))[0]
        said = {"dual": vectors[:, :12] @ dual, "classifier": vectors[:, 12:24] @ classifier}
        return sum(said.values()) if mode == "both" else said[mode]

    expected_TL = torch.autograd.functional.jacobian(scores, torch.ones(8)).T
    words = [(0, 3), (4, 9), (9, 10), (11, 13), (14, 15)]
    for column, reason in enumerate(reasons):
        assert [(token.start, token.end) for token in reason.tokens] == words
        by_token = expected_TL[:, column].tolist()
        merged_scores = [by_token[1], by_token[2] + by_token[3], *by_token[4:7]]
        assert [token.score for token in reason.tokens] == pytest.approx(merged_scores, abs=1e-4)
        assert reason.score == pytest.approx(sum(reason.parts.values()), abs=1e-9)
        assert total(reason) == pytest.approx(of_heads(reason), abs=1e-5)


def test_a_transformer_explains_texts_without_tokens_and_many_labels(transformer_model):
    for text in ("", "   "):
        for reason in explain(transformer_model, text, k=12):
            assert reason.tokens == []
            assert reason.rest == pytest.approx(of_heads(reason), abs=1e-5)
    reasons = explain(transformer_model, "red hats", k=12)
    (again,) = explain(transformer_model, "red hats", labels=[reasons[7].id])
    assert [token.score for token in again.tokens] == pytest.approx([t.score for t in reasons[7].tokens], abs=1e-5)
    assert all(parameter.grad is None for parameter in transformer_model.network.parameters())


def test_labels_of_a_transformer_in_blocks_are_those_of_one_pass(transformer_model, monkeypatch):
    whole = explain(transformer_model, "a blue shoe", k=5)
    monkeypatch.setattr("unidex.model.gradient_attribution._LABELS_AT_ONCE", 2)
    for one, other in zip(whole, explain(transformer_model, "a blue shoe", k=5), strict=True):
        assert [t.score for t in one.tokens] == pytest.approx([t.score for t in other.tokens], abs=1e-5)
        assert one.rest == pytest.approx(other.rest, abs=1e-5)


# Train texts, and labels that come together.


def similarities(model, text):
    """Of a text with every train text: the mean of both heads' inner products."""
    query, stored = (model.scorer.layout.side_by_side(model.vectors(texts)) for texts in ([text], DATA.train.texts))
    return (stored / 2).astype(np.float16).astype(np.float32) @ query[0]


@pytest.mark.parametrize("mode", ["both", "dual"])
def test_texts_are_the_nearest_with_the_label_and_cut(mode):
    model, text = random_model("auto"), DATA.test.texts[0]
    near = similarities(model, text)
    has = DATA.train.positives.toarray() > 0
    for reason in explain(model, text, mode=mode, num_texts=2):
        order = [row for row in np.argsort(-near, kind="stable").tolist() if has[row, reason.id]][:2]
        assert [row["text"] for row in reason.texts] == [DATA.train.texts[row][:20] for row in order]
        assert [row["similarity"] for row in reason.texts] == pytest.approx(near[order].tolist(), abs=1e-5)
    assert all(reason.texts == [] for reason in explain(model, text, num_texts=0))


def test_together_is_the_share_of_texts_that_have_both_labels():
    model, text = random_model("auto"), DATA.test.texts[0]
    has = DATA.train.positives.toarray() > 0
    reasons = explain(model, text, k=6)
    predicted = [reason.id for reason in reasons]
    for reason in reasons:
        shares = {other: has[has[:, reason.id], other].mean() for other in predicted if other != reason.id}
        expected = sorted((other for other in shares if shares[other]), key=lambda other: (-shares[other], other))
        assert [row["id"] for row in reason.together] == expected
        assert [row["share"] for row in reason.together] == pytest.approx([shares[row] for row in expected], abs=1e-6)
        assert all(row["uid"] == f"L{row['id']}" for row in reason.together)
    # One that is asked for by name is compared with those that are predicted.
    (one,) = explain(model, text, k=6, labels=[predicted[3]])
    assert one.together == reasons[3].together


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), max_size=8))
def test_label_texts_equal_the_dense_table(rows):
    dense = np.array(rows, dtype=np.float32).reshape(-1, 5)
    texts = LabelTexts(sparse.csr_array(dense))
    for label in range(5):
        assert texts.of(label).tolist() == np.flatnonzero(dense[:, label]).tolist()
        for other in range(5):
            both = (dense[:, label] * dense[:, other]).sum()
            assert texts.share(label, other) == pytest.approx(both / max(1, dense[:, label].sum()))
    assert texts.of(5).tolist() == []
    assert texts.share(5, 0) == texts.share(0, 5) == 0


def unit_vectors(number, dim=32, seed=0):
    vectors = np.random.default_rng(seed).standard_normal((number, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def test_a_frequent_label_is_compared_with_a_bounded_number_of_texts(monkeypatch):
    monkeypatch.setattr(neighbours, "COMPARED", 10)
    monkeypatch.setattr(neighbours, "AMONG_NEAREST", 30)
    vectors = unit_vectors(200)
    positives = sparse.csr_array(np.stack([np.arange(200) % 4 > 0, np.arange(200) % 50 == 0], axis=1).astype(float))
    part = KnnPart.of(vectors, positives)
    query = vectors[33]
    compared = []
    similarities_of = NearestTexts.similarities
    monkeypatch.setattr(
        NearestTexts, "similarities", lambda self, q, ids: compared.append(len(ids)) or similarities_of(self, q, ids)
    )
    frequent, rare = part.nearest_with([0, 1], query, 5)
    assert compared[0] <= 40
    near = vectors @ query
    expected = [row for row in np.argsort(-near).tolist() if row % 4][:5]
    assert frequent.ids[0].tolist() == expected
    assert frequent.scores[0].tolist() == pytest.approx(near[expected].tolist(), abs=1e-3)
    assert rare.ids[0].tolist() == [*sorted([0, 50, 100, 150], key=lambda row: -near[row]), -1]


def test_similarities_of_texts_in_lists_are_inner_products(monkeypatch):
    monkeypatch.setattr(nearest, "EXACT_UP_TO", 100)
    vectors = unit_vectors(300)
    texts = NearestTexts.of(vectors)
    ids = np.array([299, 3, 3, 150], dtype=np.int32)
    assert texts.similarities(vectors[3], ids) == pytest.approx(vectors[ids] @ vectors[3], abs=0.02)
    assert texts.similarities(vectors[3], ids[:0]).shape == (0,)


def test_snippets_are_saved_and_grow_with_remembered_texts(tmp_path):
    model = random_model("auto")
    model.save(tmp_path / "model")
    assert (tmp_path / "model" / "neighbours" / "texts.texts").stat().st_size < 20 * 90
    loaded = Model.load(tmp_path / "model")
    text = "an unheard of thing, of more than twenty characters"
    pair = sparse.csr_array(([1.0], [5], [0, 1]), shape=(1, 12))
    (before,) = explain(loaded, text, labels=[5])
    loaded.remember([text], pair)
    for _ in range(2):
        (reason,) = explain(loaded, text, labels=[5])
        assert reason.texts[0]["text"] == text[:20]
        assert reason.texts[0]["similarity"] == pytest.approx(1, abs=0.01)
        assert reason.texts[1:] == before.texts[:2]
        assert len(loaded.scorer.knn.snippets) == 91
        loaded.save(tmp_path / "model")
        loaded = Model.load(tmp_path / "model")


def test_snippets_without_a_knn_part_are_stored_but_not_searched(monkeypatch):
    model = random_model("auto", weights={"predict.knn": 0.0})
    alone = random_model("auto", weights={"predict.knn": 0.0, "predict.snippet_length": 0})
    assert alone.scorer.knn is None
    assert explain(alone, ASKED[0])[0].texts == explain(alone, ASKED[0])[0].together == []

    def searched(*_):
        raise AssertionError("neighbours must not be searched")

    monkeypatch.setattr(NearestTexts, "search", searched)
    wanted, found = alone.predict(ASKED, 5), model.predict(ASKED, 5)
    assert np.array_equal(wanted.scores, found.scores)
    reasons = explain(model, ASKED[0])
    assert all("knn" not in reason.parts for reason in reasons)
    assert any(reason.texts for reason in reasons)
    with pytest.raises(ModelError, match="scores have a kNN part, but those of this one have none; train it with"):
        model.remember(["a"], sparse.csr_array((1, 12)))


def test_without_snippets_an_explanation_has_no_texts_but_cooccurrence():
    model = random_model("auto", weights={"predict.snippet_length": 0})
    reasons = explain(model, DATA.test.texts[0])
    assert all(reason.texts == [] for reason in reasons)
    assert any(reason.together for reason in reasons)
    model.remember(["a"], sparse.csr_array((1, 12)))
    assert model.scorer.knn.snippets is None


def test_damaged_snippets_are_refused(tmp_path):
    kept = Snippets.of(["red hat", "", "h\ud800t"], max_length=3)
    kept.add(["\u65e5\u672c\u8a9e\u3067"])
    kept.write(tmp_path)
    again = Snippets.read(tmp_path, 4, 3)
    assert [again[row] for row in range(4)] == ["red", "", "h?t", "\u65e5\u672c\u8a9e"]
    with pytest.raises(ModelError, match="there must be 5 texts"):
        Snippets.read(tmp_path, 5, 3)[0]
    with pytest.raises(ModelError, match=r"texts\.blocks"):
        Snippets.read(tmp_path, 5000, 3)
    content = (tmp_path / "texts.texts").read_bytes()
    (tmp_path / "texts.texts").write_bytes(content[:-1] + b"x")
    with pytest.raises(ModelError, match="texts cannot be read"):
        Snippets.read(tmp_path, 4, 3)[0]
    with pytest.raises(ValueError, match=r"there must be one snippet per training text \(3\), but there are 4"):
        KnnPart.of(np.eye(3, dtype=np.float32), sparse.csr_array((3, 2)), snippets=kept)
    part = KnnPart.of(np.eye(4, dtype=np.float32), sparse.csr_array((4, 2)), snippets=kept)
    with pytest.raises(ValueError, match=r"there must be one text per vector \(1\), but are 2"):
        part.add(np.ones((1, 4), dtype=np.float32), sparse.csr_array((1, 2)), ["a", "b"])
    part.add(np.ones((1, 4), dtype=np.float32), sparse.csr_array((1, 2)))
    assert (part.num_texts, len(kept), kept[4]) == (5, 5, "")


# Which labels, and what is not one.


def test_labels_are_named_by_uid_or_id_in_the_order_asked_for():
    model = random_model("auto")
    reasons = explain(model, ASKED[0], labels=["L7", 2, np.int64(7), "L0"])
    assert [reason.id for reason in reasons] == [7, 2, 0]
    assert [reason.uid for reason in reasons] == ["L7", "L2", "L0"]
    everything = {reason.id: reason.as_dict() for reason in explain(model, ASKED[0], k=12)}
    for reason in reasons:
        known = everything[reason.id]
        assert reason.score == pytest.approx(known["score"], abs=1e-6)
        assert reason.texts == known["texts"]
        assert reason.frequency == known["frequency"]
    assert explain(model, ASKED[0], labels=[]) == []
    assert len(explain(model, ASKED[0], k=99)) == 12


def test_removed_labels_are_not_explained_and_added_ones_have_no_train_texts():
    model = random_model("auto")
    first = explain(model, ASKED[0], k=1)[0].id
    model.remove_labels([first])
    assert first not in [reason.id for reason in explain(model, ASKED[0], k=12)]
    assert all(first not in [row["id"] for row in r.together] for r in explain(model, ASKED[0], k=12))
    for name in (first, f"L{first}"):
        with pytest.raises(DataError, match="must name labels of the model, but it has no label with"):
            explain(model, ASKED[0], labels=[name])
    (added,) = model.add_labels(["w0a w2c"], ["late"])
    (reason,) = explain(model, ASKED[0], labels=["late"])
    assert (reason.id, reason.text, reason.frequency) == (added, "w0a w2c", "tail")
    assert reason.texts == reason.together == []
    assert reason.parts["knn"] == reason.parts["label_prior"] == 0
    assert total(reason) == pytest.approx(of_heads(reason), abs=1e-5)
    assert {"w0a", "W2c", "w2c"} <= {token.token for token in reason.tokens}


def test_explained_probabilities_are_the_predicted_ones():
    model = random_model("auto")
    assert all(reason.probability is None for reason in explain(model, ASKED[0]))
    best = model.topk(list(DATA.train.texts), 5)
    hits = np.take_along_axis(DATA.train.positives.toarray(), best.ids, axis=1) > 0
    model.scorer.calibration = Calibration.fit(best, hits, model.labels.frequencies, "both")
    found = model.probabilities(model.topk([ASKED[0]], 5))[0].tolist()
    assert len(set(found)) > 1
    reasons = explain(model, ASKED[0])
    assert [reason.probability for reason in reasons] == pytest.approx(found)
    everything = model.topk([ASKED[0]], 12)
    sixth, ninth = everything.ids[0, [5, 8]].tolist()
    asked = explain(model, ASKED[0], labels=[ninth, reasons[1].id, sixth])
    # The sixth stands behind the five predicted ones in either list.
    places = [model.probabilities(everything)[0, 5], found[1]]
    assert [asked[2].probability, asked[1].probability] == pytest.approx(places, abs=1e-6)
    assert 0 <= asked[0].probability <= asked[2].probability <= 1
    assert all(reason.probability is None for reason in explain(model, ASKED[0], mode="dual"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": ["a"]}, r"a text to explain must be one string, but is \['a'\]"),
        ({"k": 0}, "k must be at least 1, but is 0"),
        ({"mode": "neither"}, "mode must be both, dual or classifier, but is 'neither'"),
        ({"num_texts": -1}, "num_texts must be at least 0, but is -1"),
        ({"labels": ["L1", "L99", 12]}, "must name labels of the model, but it has no label with id 12, uid 'L99'"),
        ({"labels": [-1]}, "it has no label with id -1"),
        ({"labels": "L1"}, "must be a list of uids or ids, but are one string"),
        ({"labels": [1.0]}, r"a uid \(a string\) or an id \(a whole number\), but is 1.0"),
        ({"labels": [True]}, "but is True"),
    ],
)
def test_wrong_input_is_named(arguments, message):
    with pytest.raises(DataError, match=message):
        explain(MODELS[0], **{"text": "w0a"} | arguments)


def test_a_head_that_is_not_there_is_an_error():
    with pytest.raises(DataError, match="but it was trained without 'classifier'"):
        explain(random_model("dexml"), "w0a", mode="classifier")


def test_texts_without_any_feature_have_no_words():
    model = random_model("auto", "features.num_buckets=0")
    for text in ("", "nothing known here", "..."):
        for reason in explain(model, text, k=3):
            assert reason.tokens == []
            assert reason.rest == of_heads(reason) == 0


# The command line.


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "model"
    random_model("auto").save(out)
    return out


def test_explain_prints_the_explanation(folder):
    text = DATA.train.texts[1]
    done = call("explain", folder, text, "-k", 2, "--texts", 1)
    reasons = [reason.as_dict() for reason in explain(Model.load(folder), text, k=2, num_texts=1)]
    lines = done.stdout.splitlines()
    titles = [line for line in lines if re.match(r"\d\. ", line)]
    assert [line.split("  ")[0] for line in titles] == [f"{n}. {r['text']}" for n, r in enumerate(reasons, start=1)]
    names = [line.split()[0] for line in lines if re.match(r"   (dual|classifier|knn|label_prior) ", line)]
    assert names == ["dual", "classifier", "knn", "label_prior"] * 2
    assert sum(line.startswith("   train text") for line in lines) == sum(len(r["texts"]) for r in reasons)
    assert sum(line.startswith("   occurs with") for line in lines) == sum(len(r["together"]) for r in reasons)
    (first, *_) = [line for line in lines if line.startswith("   text")]
    best = max(reasons[0]["tokens"], key=lambda token: abs(token["score"]))["token"]
    assert f"**{best}**" in first or f"~{best}~" in first
    assert re.sub(r"[*~]", "", first).removeprefix("   text          ") == text


def test_explain_prints_json_and_reads_standard_input(folder, monkeypatch):
    text = DATA.train.texts[1]
    wanted = [reason.as_dict() for reason in explain(Model.load(folder), text, labels=["L3", "L1"], mode="dual")]
    done = call("explain", folder, text, "--label", "L3", "--label", "L1", "--mode", "dual", "--json")
    assert json.loads(done.stdout) == {"text": text, "labels": wanted}
    from typer.testing import CliRunner

    from unidex.cli.main import app

    done = CliRunner().invoke(app, ["--quiet", "explain", str(folder), "-", "--json", "-k", "1"], input=text + "\n")
    assert json.loads(done.stdout)["text"] == text
    with pytest.raises(DataError, match="must name labels of the model, but it has no label with uid 'L99'"):
        call("explain", folder, text, "--label", "L99")


def test_on_a_terminal_the_words_are_shown_as_they_are(capsys):
    row = explain(MODELS[0], "w0a [bold]w2c", k=1)[0].as_dict() | {"text": "[red]label[/red]", "probability": 0.25}
    _Page(0.5, is_terminal=True).label(1, row, "w0a [bold]w2c")
    shown = capsys.readouterr().out
    assert "1. [red]label[/red]" in shown
    assert "probability 0.25" in shown
    assert "w0a [bold]w2c" in shown
    assert "\u2588" in shown


@given(st.text(max_size=80), st.data())
def test_marked_pieces_are_the_text(text, data):
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    tokens = [
        {"start": start, "end": end, "score": data.draw(st.floats(-1, 1))} for start, end in pairwise(cuts) if end
    ]
    pieces = marked_pieces(text, tokens)
    assert re.sub(r"\s+", " ", "".join(piece for piece, _ in pieces)) == re.sub(r"\s+", " ", text)
    strongest = max((abs(token["score"]) for token in tokens), default=0)
    wanted = [token for token in tokens if strongest and abs(token["score"]) >= 0.2 * strongest]
    assert sum(mark != 0 for _, mark in pieces) == len(wanted)


def test_a_long_text_is_shown_around_its_marked_words_only():
    text = "before " * 100 + "red" + " between" * 100 + " hat" + " after" * 100
    tokens = [{"start": text.index(w), "end": text.index(w) + len(w), "score": 1.0} for w in ("red", "hat")]
    shown = "".join(piece for piece, _ in marked_pieces(text, tokens))
    assert len(shown) < 250
    assert re.fullmatch(r" \.\.\. (before )+red( between)+ \.\.\. (between )+hat( after)+ \.\.\.", shown)

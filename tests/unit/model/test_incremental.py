"""Teaching: the vectors of a few labels turn towards new texts, in every kind of model, and nothing else moves."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from helpers.command import run
from helpers.synthetic import QUICK, topics
from unidex.config import recipes as recipes
from unidex.data.texts import Texts
from unidex.encoders.registry import build_encoder
from unidex.errors import DataError, UnidexError
from unidex.losses import Targets, decoupled_softmax
from unidex.model import incremental as teaching
from unidex.model.incremental import teach
from unidex.model.label_set import LabelSet
from unidex.model.model import Model
from unidex.model.rotation import Pairs, _pull, rotate
from unidex.nn.assembly import build_network
from unidex.scoring import nearest_texts as nearest
from unidex.scoring.knn import KnnPart
from unidex.verbs.labels import add_labels, teach_labels
from unidex.verbs.train import train

NUM_LABELS = 24
# A word each of L3 and L5, and one of no label.
TAUGHT = ["w6g w10k w50y", "w6g w10k w52a", "w6g w10k w55d"]
ASKED = "w6g w10k w57f"
KINDS = {
    "both": ["predict.knn=0.3"],
    "both without neighbours": ["predict.label_prior=0.02", "predict.choose_label_prior=false"],
    "dual": ["heads.classifier=false"],
    "classifier": ["heads.dual=false"],
    "plain classifier": [
        "heads.dual=false",
        "heads.classifier_search_vectors=plain",
        "heads.classifier_normalised=false",
    ],
    "lengths": ["heads.dual_normalised=false", "loss.temperature=1.0"],
    "pq": ["predict.index=pq"],
    "hnsw": ["predict.index=hnsw"],
}
kinds = pytest.mark.parametrize("kind", sorted(KINDS))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model folder a kind, trained when first asked for."""
    made = {}

    def folder(kind):
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp("models") / kind.replace(" ", "-")
            chosen = [*QUICK, "train.epochs=3", *KINDS[kind]]
            train(topics(num_test=0), "unidec", settings=chosen, out=made[kind])
        return made[kind]

    return folder


def pairs(model, *labels_of_texts):
    """Positives of texts, from the labels of each."""
    positives = sparse.lil_array((len(labels_of_texts), len(model.labels)), dtype=np.float32)
    for row, labels in enumerate(labels_of_texts):
        positives[row, labels] = 1
    return sparse.csr_array(positives)


def place_of(model, text, label, mode=None):
    return model.predict([text], len(model.labels), mode=mode).ids[0].tolist().index(label)


def worst_label(model, text):
    return int(model.predict([text], len(model.labels)).ids[0, -1])


def precision(model, dataset):
    best = model.predict(list(dataset.test.texts), 1).ids[:, 0]
    return np.mean([label in dataset.test.positives[[row]].indices for row, label in enumerate(best.tolist())])


# The mathematics of turning.


def random_pairs(seed, num_texts=30, num_taught=4, num_others=9, dim=8, temperature=0.1):
    """A pairs of all pairs, and the same as dense tables: scores of all labels are known, the taught ones first."""
    rng = np.random.default_rng(seed)
    vectors, texts = (rng.standard_normal((number, dim)) for number in (num_taught + num_others, num_texts))
    vectors, texts = (table / np.linalg.norm(table, axis=1, keepdims=True) for table in (vectors, texts))
    positives = rng.random((num_texts, num_taught + num_others)) < 0.15
    positives[np.arange(num_texts), rng.integers(num_taught + num_others, size=num_texts)] = True
    scores = texts @ vectors[num_taught:].T / temperature
    others = positives[:, num_taught:]
    text_P, label_P = (numbers.ravel() for numbers in np.indices((num_texts, num_taught)))
    text_F = np.nonzero(others)[0]
    pairs = Pairs(
        texts.astype(np.float32),
        text_P,
        label_P,
        positives[:, :num_taught].ravel(),
        np.ones(len(text_P), dtype=bool),
        np.logaddexp.reduce(np.where(others, -np.inf, scores), axis=1),
        text_F,
        scores[others],
        temperature,
    )
    return vectors.astype(np.float32), texts, positives, pairs


def dense_pull(vectors, texts, positives, temperature):
    """g of all labels, written down as the formula has it."""
    powers = np.exp(texts @ vectors.astype(np.float64).T / temperature)
    rest = (powers * ~positives).sum(axis=1, keepdims=True)
    missed = rest / (powers + rest)
    mean = (missed * positives).sum(axis=1, keepdims=True) / positives.sum(axis=1, keepdims=True)
    return np.where(positives, missed, -mean * powers / rest)


@pytest.mark.parametrize("seed", range(3))
def test_pairs_give_what_the_formula_gives_on_dense_tables(seed):
    vectors, texts, positives, pairs = random_pairs(seed)
    found = _pull(vectors[:4], pairs).reshape(30, 4)
    assert found == pytest.approx(dense_pull(vectors, texts, positives, 0.1)[:, :4], rel=1e-4)


def test_the_pull_is_the_gradient_of_decoupled_softmax():
    rng = np.random.default_rng(0)
    texts, vectors = (rng.standard_normal((number, 6)).astype(np.float32) / 3 for number in (20, 5))
    label_of_text = rng.integers(5, size=20)
    scores = torch.from_numpy(texts @ vectors.T / 0.2)
    gradient = decoupled_softmax(scores, Targets.of(range(20), label_of_text.tolist(), shape=(20, 5))).gradient
    text_P, label_P = (numbers.ravel() for numbers in np.indices((20, 5)))
    nothing = np.empty(0)
    is_positive = label_P == label_of_text[text_P]
    pairs = Pairs(texts, text_P, label_P, is_positive, is_positive, np.full(20, -np.inf), text_P[:0], nothing, 0.2)
    assert _pull(vectors, pairs).reshape(20, 5) == pytest.approx(-20 * gradient.numpy(), abs=1e-5)


def test_learned_vectors_balance_the_new_pairs_and_the_old_vector():
    vectors, texts, positives, pairs = random_pairs(5, num_texts=12)
    found = rotate(vectors[:4], pairs, strength=0.1, rounds=200)
    pull = dense_pull(np.concatenate([found, vectors[4:]]), texts, positives, 0.1)[:, :4]
    balanced = vectors[:4] + 0.1 * pull.T @ texts
    assert found == pytest.approx(balanced / np.linalg.norm(balanced, axis=1, keepdims=True), abs=1e-4)
    # So few rounds come near.
    assert rotate(vectors[:4], pairs, strength=0.1) == pytest.approx(found, abs=0.02)


def test_old_pairs_alone_change_nothing_and_resist_new_ones():
    texts = np.array([[1.0, 0.0, 0.0], [0.9, 0.435889894, 0.0]], dtype=np.float32)
    vectors = np.array([[0.0, 0.0, 1.0]], dtype=np.float32)
    two, one, nothing = np.arange(2), np.zeros(2, dtype=np.int64), np.empty(0)
    rest = np.full(2, 3.0)

    def moved(new, positive):
        pairs = Pairs(texts, two, one, np.array(positive), np.array(new), rest, two[1:], np.array([3.0]), 0.1)
        return rotate(vectors, pairs, strength=1.0)[0]

    assert moved([False, False], [True, False]) == pytest.approx(vectors[0], abs=1e-6)
    # The second text has another label and stands near the first: the label keeps more distance than without it.
    with_it = moved([True, False], [True, False])
    alone = Pairs(texts[:1], two[:1], one[:1], *[np.array([True])] * 2, rest[:1], two[:0], nothing, 0.1)
    without_it = rotate(vectors, alone, strength=1.0)[0]
    assert without_it @ texts[0] > 0.3
    assert with_it @ texts[0] > 0.1
    assert with_it @ texts[1] < without_it @ texts[1] - 0.02


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 1000),
    length=st.sampled_from([0.0, 1e-3, 1.0, 400.0]),
    temperature=st.sampled_from([0.01, 0.1, 1.0]),
    strength=st.floats(0, 5),
)
def test_lengths_stay_and_numbers_are_finite_whatever_the_scores(seed, length, temperature, strength):
    vectors, _, _, pairs = random_pairs(seed, num_texts=7, temperature=temperature)
    found = rotate(vectors[:4] * np.float32(length), pairs, strength=strength)
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    if length:
        assert np.linalg.norm(found, axis=1) == pytest.approx(length, rel=1e-4)


@pytest.mark.parametrize("seed", [0, 1, 2, 15, 17])
def test_a_taught_label_rises_however_steep_its_scores_are(seed):
    rng = np.random.default_rng(seed)
    # Texts with a direction in common, of which the first is new and the others resist together.
    texts = 1 + rng.standard_normal((60, 8)).astype(np.float32)
    texts *= 2 / np.linalg.norm(texts, axis=1, keepdims=True)
    labels = rng.standard_normal((18, 8)).astype(np.float32) / 2
    scores = (texts @ labels.T / 0.1).astype(np.float64)
    text_P, rest = np.arange(60), np.logaddexp.reduce(scores[:, 2:], axis=1)
    is_new, taught = text_P == 0, np.zeros(60, dtype=np.int64)
    pairs = Pairs(texts, text_P, taught, is_new, is_new, rest, text_P, scores[:, 1], 0.1)
    assert rotate(labels[:1], pairs)[0] @ texts[0] > labels[0] @ texts[0] + 1e-3


def test_pairs_already_won_or_without_rivals_change_nothing():
    texts = np.array([[1.0, 0.0]], dtype=np.float32)
    vectors = np.array([[0.8, 0.6]], dtype=np.float32)
    one, nothing = np.zeros(1, dtype=np.int64), np.empty(0)
    for rest in (-np.inf, -200.0):
        pairs = Pairs(texts, one, one, np.array([True]), np.array([True]), np.array([rest]), one[:0], nothing, 0.05)
        assert rotate(vectors, pairs) == pytest.approx(vectors, abs=1e-6)
    no_pairs = Pairs(
        texts, one[:0], one[:0], np.empty(0, dtype=bool), np.empty(0, dtype=bool), np.zeros(1), one[:0], nothing, 0.05
    )
    assert rotate(vectors, no_pairs) == pytest.approx(vectors, abs=1e-6)


# Models.


@kinds
def test_taught_labels_are_found_and_nothing_else_moves(folders, kind):
    dataset, model = topics(), Model.load(folders(kind))
    label = worst_label(model, ASKED)
    before, rows = place_of(model, ASKED, label), model.scorer.index.vectors(np.arange(NUM_LABELS))
    weights = {name: weight.clone() for name, weight in model.network.state_dict().items()}
    tables = {name: table.weight.clone() for name, table in model.network.tables().items()}
    was_right = precision(model, dataset)
    done = teach(model, TAUGHT, pairs(model, *[[label]] * 3))
    assert (done["num_texts"], done["num_pairs"], done["num_labels"]) == (3, 3, 1)
    # Of all labels the one that stood farthest away.
    assert place_of(model, ASKED, label) < before
    assert precision(model, dataset) >= was_right - 0.02
    others = np.delete(np.arange(NUM_LABELS), label)
    assert np.array_equal(model.scorer.index.vectors(others), rows[others])
    assert not np.array_equal(model.scorer.index.vectors(np.array([label])), rows[[label]])
    assert all(torch.equal(weights[name], weight) for name, weight in model.network.state_dict().items())
    for name, table in model.network.tables().items():
        stays = others if name == "classifiers" else slice(None)
        assert torch.equal(table.weight[stays], tables[name][stays])


@kinds
def test_the_classifier_that_is_kept_is_the_one_that_is_searched(folders, kind):
    model = Model.load(folders(kind))
    teach(model, TAUGHT, pairs(model, [3], [3, 4], [4]))
    if model.network.classifiers is None:
        return
    wanted = model.network.classifier.as_searched(model.network.classifiers.weight)[[3, 4]].numpy()
    if model.network.dual is not None:
        wanted = wanted * (1 - model.config.predict.fusion)
    width = model.scorer.index.dim - (model.config.predict.label_prior != 0)
    found = model.scorer.index.vectors(np.array([3, 4]))[:, width - wanted.shape[1] : width]
    assert found == pytest.approx(wanted, abs=1e-5)


def test_frequencies_and_the_label_prior_rise_with_the_pairs(folders):
    model = Model.load(folders("both without neighbours"))
    before = model.labels.frequencies.copy()
    teach(model, TAUGHT, pairs(model, [5], [5, 7], [5]))
    expected = before + np.isin(np.arange(NUM_LABELS), [5, 7]) + 2 * (np.arange(NUM_LABELS) == 5)
    assert model.labels.frequencies.tolist() == expected.tolist()
    prior = model.config.predict.label_prior
    assert prior != 0
    bonus = model.scorer.index.vectors(np.arange(NUM_LABELS))[:, -1]
    assert bonus == pytest.approx(prior * np.log1p(expected), abs=1e-6)


@pytest.mark.parametrize("kind", sorted(kind for kind in KINDS if "classifier" not in kind))
def test_a_label_that_was_just_added_can_be_taught(folders, kind):
    dataset, model = topics(), Model.load(folders(kind))
    was_right = precision(model, dataset)
    (label,) = model.add_labels(["w70s w71t"], ["new"]).tolist()
    before = place_of(model, ASKED, label)
    teach(model, TAUGHT, pairs(model, *[[label]] * 3))
    for mode in ("both", "dual", "classifier"):
        if mode == "both" or getattr(model.network, mode) is not None:
            assert place_of(model, ASKED, label, mode=mode) <= 3 < before
    assert model.labels.frequencies[label] == 3
    assert precision(model, dataset) >= was_right - 0.02


@kinds
def test_a_taught_model_is_the_same_after_loading(folders, kind, tmp_path):
    model = Model.load(folders(kind))
    teach(model, TAUGHT, pairs(model, [2], [9], [2, 9]))
    model.save(tmp_path / "model")
    again = Model.load(tmp_path / "model")
    texts = [*TAUGHT, ASKED, *topics().test.texts]
    wanted, found = model.predict(texts, 5), again.predict(texts, 5)
    assert found.ids.tolist() == wanted.ids.tolist()
    assert found.scores == pytest.approx(wanted.scores, abs=1e-4)
    assert again.labels.frequencies.tolist() == model.labels.frequencies.tolist()


def test_texts_are_remembered_and_a_known_text_only_gets_further_labels(folders):
    dataset, model = topics(), Model.load(folders("both"))
    known = dataset.train.texts[0]
    own = dataset.train.positives[[0]].indices.tolist()
    other = next(label for label in range(NUM_LABELS) if label not in own)
    before = model.scorer.knn.num_texts
    done = teach(model, [known, TAUGHT[0]], pairs(model, [other], [other]))
    assert done["num_remembered"] == 2
    assert model.scorer.knn.num_texts == before + 1
    assert sorted(model.scorer.knn.positives[[0]].indices.tolist()) == sorted([*own, other])
    assert model.scorer.knn.positives[[before]].indices.tolist() == [other]


def test_known_texts_are_recognised_when_they_are_kept_in_lists(folders, monkeypatch):
    dataset, model = topics(), Model.load(folders("both"))
    monkeypatch.setattr(nearest, "EXACT_UP_TO", 50)
    vectors, positives = model.scorer.knn.vectors(np.arange(240)), model.scorer.knn.positives
    model.scorer.knn = KnnPart.of(vectors, positives, num_nearest=8)
    assert model.scorer.knn.vectors(np.arange(240)) == pytest.approx(vectors, abs=0.01)
    assert not np.array_equal(model.scorer.knn.vectors(np.arange(240)), vectors)
    own = positives[[7]].indices.tolist()
    other = next(label for label in range(NUM_LABELS) if label not in own)
    teach(model, [dataset.train.texts[7]], pairs(model, [other]))
    assert model.scorer.knn.num_texts == 240
    assert sorted(model.scorer.knn.positives[[7]].indices.tolist()) == sorted([*own, other])


def test_texts_that_get_further_labels_keep_the_targets_they_have():
    targets = sparse.csr_array(np.array([[0.5, 0, 0], [0, 1, 0]], dtype=np.float32))
    part = KnnPart.of(np.eye(2, dtype=np.float32), targets)
    assert part.label_texts().of(2).tolist() == []
    part.join(np.array([1]), sparse.csr_array(np.array([[1, 1, 1]])))
    part.join(np.array([], dtype=np.int64), sparse.csr_array((0, 3)))
    assert part.positives.toarray().tolist() == [[0.5, 0, 0], [1, 1, 1]]
    assert part.label_texts().of(2).tolist() == [1]
    with pytest.raises(ValueError, match="one column per label"):
        part.join(np.array([0]), sparse.csr_array((1, 4)))


def test_a_text_given_twice_is_one_text_with_all_its_labels(folders):
    twice, once = (Model.load(folders("both")) for _ in range(2))
    assert teach(twice, [TAUGHT[0], TAUGHT[1], TAUGHT[0]], pairs(twice, [3], [4], [3, 8]))["num_pairs"] == 3
    teach(once, TAUGHT[:2], pairs(once, [3, 8], [4]))
    every = np.arange(NUM_LABELS)
    assert np.array_equal(twice.scorer.index.vectors(every), once.scorer.index.vectors(every))
    assert twice.labels.frequencies.tolist() == once.labels.frequencies.tolist()


def test_incremental_learning_is_deterministic(folders):
    models = [Model.load(folders("both")) for _ in range(2)]
    for model in models:
        teach(model, TAUGHT, pairs(model, [3], [4], [3, 8]))
    first, second = (model.scorer.index.vectors(np.arange(NUM_LABELS)) for model in models)
    assert np.array_equal(first, second)


def test_a_head_of_weight_0_does_not_change(folders):
    model = Model.load(folders("both without neighbours"))
    model.scorer.layout = replace(model.scorer.layout, weights=replace(model.scorer.layout.weights, fusion=1.0))
    before = model.network.classifiers.weight.clone()
    teach(model, TAUGHT, pairs(model, [3], [3], [3]))
    assert torch.equal(model.network.classifiers.weight, before)


def test_a_transformer_is_taught_without_touching_it(tmp_path):
    transformers = pytest.importorskip("transformers", reason="the transformers extra is not installed")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "blue", "shoe", "hat", "coat", "green", "tie"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    transformers.BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    transformers.BertModel(
        transformers.BertConfig(vocab_size=len(words), initializer_range=0.5, **shape)
    ).save_pretrained(tmp_path)
    chosen = recipes.load("unidec", ["encoder.kind=transformer", f"encoder.path={tmp_path}", "encoder.max_length=8"])
    labels = ["red shoe", "blue hat", "green coat", "red tie"]
    encoder = build_encoder(chosen, Texts.of(labels), Texts.of(labels))
    network = build_network(chosen, encoder, len(labels))
    counts = np.zeros(4, dtype=np.int64)
    model = Model.build(chosen, network, LabelSet(labels, labels, counts, counts > 0), encoder.prepare(labels))
    label, text = worst_label(model, "blue tie"), "blue tie"
    weights = {name: weight.clone() for name, weight in network.state_dict().items()}
    before = place_of(model, text, label)
    for _ in range(3):
        teach(model, [text], pairs(model, [label]))
    assert place_of(model, text, label) < before
    assert all(torch.equal(weights[name], weight) for name, weight in network.state_dict().items())


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        ("one text", [[1]], "texts must be a list of texts, but is one text"),
        (["a", "b"], [[1]], "positives must be 2 texts x 24 labels, but are 1 x 24"),
        (["a"], [[]], "at least one pair of a text and a label to teach, but there is none"),
        ([], [], "at least one pair of a text and a label to teach, but there is none"),
        (["a", "b"], [[1], [6]], "labels to teach must be among the model's, but these were removed: 6"),
    ],
)
def test_invalid_pairs_are_refused_and_change_nothing(folders, texts, labels, message):
    model = Model.load(folders("both"))
    model.remove_labels([6])
    before = model.scorer.index.vectors(np.arange(NUM_LABELS)).copy()
    with pytest.raises(DataError, match=message):
        teach(model, texts, pairs(model, *labels))
    assert np.array_equal(model.scorer.index.vectors(np.arange(NUM_LABELS)), before)


words = st.lists(st.sampled_from([f"w{number}{chr(97 + number % 26)}" for number in range(80)]), max_size=6)
told = st.lists(
    st.tuples(
        words.map(" ".join) | st.text(max_size=20), st.sets(st.integers(0, NUM_LABELS - 1), min_size=1, max_size=4)
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=10, deadline=None)
@given(told=told)
def test_any_texts_can_be_taught(folders, told):
    model = Model.load(folders("both"))
    before = model.scorer.index.vectors(np.arange(NUM_LABELS)).copy()
    teach(model, [text for text, _ in told], pairs(model, *[sorted(labels) for _, labels in told]))
    taught = sorted(set().union(*(labels for _, labels in told)))
    after = model.scorer.index.vectors(np.arange(NUM_LABELS))
    others = np.setdiff1d(np.arange(NUM_LABELS), taught)
    assert np.array_equal(after[others], before[others])
    assert np.isfinite(after).all()
    assert np.linalg.norm(after, axis=1) == pytest.approx(np.linalg.norm(before, axis=1), rel=1e-4)
    assert (model.predict([text for text, _ in told], 3).ids >= 0).all()


# The verb.


def test_learning_the_same_pairs_again_moves_vectors_further(folders):
    model = Model.load(folders("classifier"))
    label = worst_label(model, ASKED)
    places = []
    for _ in range(3):
        places.append(place_of(model, ASKED, label))
        teach(model, TAUGHT, pairs(model, *[[label]] * 3))
    assert places[0] > places[1] > places[2]


def test_the_verb_writes_a_copy_or_the_folder_itself_with_the_labels_of_its_journal(folders, tmp_path):
    folder = tmp_path / "model"
    Model.load(folders("both")).save(folder)
    file = tmp_path / "pairs.jsonl"
    add_labels(folder, ["a thing nobody knew"], None)
    rows = [{"text": text, "labels": ["a thing nobody knew"]} for text in TAUGHT]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = run("labels", "teach", folder, file, "--out", tmp_path / "copy", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told == {
        **{"model": str(tmp_path / "copy"), "num_texts": 3, "num_pairs": 3, "num_labels": 1, "num_remembered": 3},
        "num_replayed": told["num_replayed"],
    }
    assert place_of(Model.load(tmp_path / "copy"), ASKED, NUM_LABELS) < place_of(Model.load(folder), ASKED, NUM_LABELS)
    with pytest.raises(UnidexError, match="copy: the model folder must be new, but exists"):
        teach_labels(folder, file, tmp_path / "copy")
    done = teach_labels(folder, file)
    assert done["model"] == str(folder)
    same = [Model.load(place).predict([ASKED], 5).ids.tolist() for place in (folder, tmp_path / "copy")]
    assert same[0] == same[1]


def test_the_verb_names_the_line_that_is_wrong_and_leaves_the_folder(folders, tmp_path):
    folder = tmp_path / "model"
    Model.load(folders("both")).save(folder)
    before = (folder / "manifest.json").read_bytes()
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"text": "a", "labels": ["L1"]}\n{"text": "b", "labels": ["L99"]}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"pairs.jsonl:2: a label must be one of the model's, but it has no .* 'L99'"):
        teach_labels(folder, file)
    assert (folder / "manifest.json").read_bytes() == before
    file.write_text('{"text": "a", "labels": ["L1", "L2"]}\n', encoding="utf-8")
    done = run("labels", "teach", folder, file)
    assert done.stdout.startswith(f"{folder}: 2 labels taught with 2 pairs of 1 texts, against ")


def test_the_number_of_replayed_texts_is_bounded(folders, monkeypatch):
    model = Model.load(folders("both"))
    monkeypatch.setattr(teaching, "NEAR_TEXTS", 5)
    done = teach(model, TAUGHT, pairs(model, [1], [1], [1]))
    assert 0 < done["num_replayed"] <= 5 + teaching.NEAR_LABELS

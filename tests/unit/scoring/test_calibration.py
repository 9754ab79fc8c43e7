"""Probabilities: what they are fitted to, that they mean what they say, and that they go with the model."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import sparse
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from typer.testing import CliRunner

from helpers.stopped_runs import stopped_in_phase
from helpers.synthetic import topics
from unidex.cli.main import app
from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.texts import Texts
from unidex.errors import DataError, ModelError
from unidex.features.known_words import random_texts
from unidex.metrics.reliability import expected_calibration_error, reliability
from unidex.metrics.thresholds import at_precision, at_probability, best_f1
from unidex.model.model import Model
from unidex.scoring.calibration import FEATURES, Calibration, place_features
from unidex.scoring.calibration_fit import MIN_TEXTS, PLACES, SHOWN, Places, fit_calibration
from unidex.scoring.regressions import fit_logistic, fit_table
from unidex.topk import TopK
from unidex.training.loop import Trainer
from unidex.training.validation import Validation
from unidex.verbs.calibrate import calibrate
from unidex.verbs.evaluate import evaluate
from unidex.verbs.predict import predict_rows
from unidex.verbs.train import train

SMALL = ["encoder.dim=16", "features.min_df=1", "train.epochs=2", "train.batch_size=12"]
SMALL += ["augment.method=none", "pool.try_hard_negatives=0", "train.validation=0.2", "predict.index=exact"]


def noisy(num_train=240, num_test=400, share=0.3):
    """As topics, but a share of the texts has other labels than it says, so that no score is certain."""
    data = topics(num_train=num_train, num_test=num_test)

    def mixed(split, seed):
        rng = np.random.default_rng(seed)
        rows = np.arange(len(split))
        wrong = rng.random(len(rows)) < share
        rows[wrong] = rng.permutation(rows[wrong])
        return Split.of(split.texts, split.positives[rows], split.filter_pairs)

    return Dataset("noisy", data.labels, mixed(data.train, 1), mixed(data.test, 2))


DATA = noisy()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "noisy"
    train(DATA, "auto", settings=SMALL, out=out)
    return out


def scored(num_texts=3000, k=10, num_labels=300, seed=0):
    """Places that are right with a probability which is known: by score, place and frequency class."""
    rng = np.random.default_rng(seed)
    ids = np.argsort(rng.random((num_texts, num_labels)), axis=1)[:, :k]
    topk = TopK.rank(ids, rng.normal(0.4, 0.25, (num_texts, k)))
    frequencies = np.repeat([500, 50, 2], num_labels // 3)
    features = place_features(topk, frequencies)
    # Places that a frequent label behind a rare one would break: no place is likelier than the one before it.
    logits = features @ np.array([4.0, 2.0, 0.0, -0.8, 0.7, -0.7]) - 0.5
    truth = expit(np.minimum.accumulate(logits, axis=1))
    return topk, frequencies, truth, rng.random(truth.shape) < truth


def fitted(num_texts):
    topk, frequencies, _, hits = scored(num_texts)
    return Calibration.fit(topk, hits, frequencies)


FITTED = fitted(60)

# Metrics.

probabilities = arrays.arrays(np.float64, st.integers(1, 40), elements=st.floats(0, 1))


@given(probabilities, st.randoms(use_true_random=False))
def test_the_error_is_the_sum_over_bins(found, random):
    hits = np.array([random.random() < 0.5 for _ in found])
    wanted = 0.0
    for number in range(15):
        # As the code cuts them: a rounding error of the product decides at a bound.
        inside = (np.floor(found * 15) == number) | ((number == 14) & (found == 1))
        if inside.any():
            wanted += inside.mean() * abs(found[inside].mean() - hits[inside].mean())
    assert expected_calibration_error(found, hits) == pytest.approx(wanted)
    bins = reliability(found, hits)
    assert sum(part.num_places for part in bins) == len(found)
    assert all(part.low - 1e-9 <= part.probability <= part.high + 1e-9 for part in bins)


def test_no_places_have_no_error_and_shapes_must_agree():
    assert expected_calibration_error(np.empty(0), np.empty(0, dtype=bool)) == 0
    with pytest.raises(ValueError, match=r"one probability per hit, but shapes are \(2,\) and \(3,\)"):
        reliability(np.zeros(2), np.zeros(3, dtype=bool))


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 1.0]), st.booleans()), min_size=1), st.integers(0, 5)
)
def test_thresholds_are_the_best_of_all(places, missed):
    found, hits = np.array([p for p, _ in places]), np.array([hit for _, hit in places])
    num_positives = int(hits.sum()) + missed
    everyone = [at_probability(found, hits, num_positives, p) for p in sorted(set(found.tolist()))]
    best = best_f1(found, hits, num_positives)
    assert (best is None) == (not hits.any())
    if best is not None:
        assert best.f1 == pytest.approx(max(threshold.f1 for threshold in everyone))
        assert best == at_probability(found, hits, num_positives, best.probability)
        if missed == 0:
            assert best.f1 == pytest.approx(f1_score(hits, found >= best.probability))
    for asked in (0.3, 0.8, 1.0):
        reached = [one for one in everyone if one.precision >= asked and one.f1 > 0]
        given_one = at_precision(found, hits, num_positives, asked)
        assert (given_one is None) == (not reached)
        if given_one is not None:
            assert given_one.probability == min(one.probability for one in reached)
            assert given_one.recall == max(one.recall for one in reached)


# Fitting.


def test_the_logistic_is_that_of_scikit_learn():
    topk, frequencies, _, hits = scored(500)
    features, hits = place_features(topk, frequencies).reshape(-1, len(FEATURES)), hits.ravel()
    weights, intercept = fit_logistic(features, hits)
    scaled = (features - features.mean(axis=0)) / np.where(features.std(axis=0) > 0, features.std(axis=0), 1)
    theirs = LogisticRegression(C=1.0, tol=1e-8, max_iter=1000).fit(scaled, hits)
    np.testing.assert_allclose(features @ weights + intercept, theirs.decision_function(scaled), atol=1e-3)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_the_logistic_is_where_nothing_falls(scale):
    """Also where features tell right from wrong, are the same everywhere, or are many times larger than others."""
    rng = np.random.default_rng(1)
    features = np.column_stack([rng.standard_normal(300), np.ones(300), rng.standard_normal(300) * scale])
    for hits in (features[:, 0] > 0, features[:, 0] + rng.standard_normal(300) > 1.5, np.arange(300) == 7):
        weights, intercept = fit_logistic(features, hits)
        spread = np.where(features.std(axis=0) > 0, features.std(axis=0), 1)
        wrong = expit(-np.where(hits, 1, -1) * (features @ weights + intercept)) * np.where(hits, 1, -1)
        slopes = weights * spread - ((features - features.mean(axis=0)) / spread).T @ wrong
        assert np.abs(slopes).max() < 1e-6
        assert abs(wrong.sum()) < 1e-6


@given(
    arrays.arrays(np.float64, st.integers(1, 60), elements=st.sampled_from(np.linspace(-3, 3, 13).tolist())),
    st.randoms(use_true_random=False),
)
def test_the_table_has_the_blocks_of_scikit_learn(logits, random):
    hits = np.array([random.random() < expit(logit) for logit in logits])
    knots, values = fit_table(logits, hits)
    assert (np.diff(knots) > 0).all()
    assert (np.diff(values) >= 0).all()
    assert values.min() > 0
    assert values.max() < 1
    shares = IsotonicRegression(out_of_bounds="clip").fit(logits, hits.astype(float)).predict(logits)
    # A block of equal shares is one knot, whose value differs by less than one place counts.
    for share in np.unique(shares.round(9)):
        block = np.abs(shares - share) < 1e-8
        at = np.flatnonzero(np.isclose(knots, logits[block].mean()))
        assert len(at) == 1
        raw = (hits[block].sum() + expit(logits[block]).mean()) / (block.sum() + 1)
        assert values[at[0]] >= raw - 1e-9


def test_nothing_right_or_everything_right_is_not_certain():
    topk, frequencies, _, hits = scored(30)
    for known in (np.zeros_like(hits), np.ones_like(hits)):
        found = Calibration.fit(topk, known, frequencies).probabilities(topk, frequencies)
        assert np.abs(found - known).max() < 0.01
        assert found.min() > 0
        assert found.max() < 1


def test_probabilities_are_those_the_places_were_made_with():
    topk, frequencies, truth, hits = scored()
    found = Calibration.fit(topk, hits, frequencies).probabilities(topk, frequencies)
    assert found.dtype == np.float32
    assert np.abs(found - truth).mean() < 0.02
    fresh, _, fresh_truth, fresh_hits = scored(seed=1)
    on_others = Calibration.fit(topk, hits, frequencies).probabilities(fresh, frequencies)
    assert np.abs(on_others - fresh_truth).mean() < 0.02
    assert expected_calibration_error(on_others.ravel(), fresh_hits.ravel()) < 0.015
    # Score alone cannot know it: place and frequency class count.
    alone = Calibration.fit(topk, hits, np.full_like(frequencies, 50))
    assert np.abs(alone.probabilities(fresh, np.full_like(frequencies, 50)) - fresh_truth).mean() > 0.05


def test_probabilities_do_not_depend_on_how_many_are_asked_for_and_padding_has_none():
    topk, frequencies, _, hits = scored(200)
    fit = Calibration.fit(topk, hits, frequencies)
    all_places = fit.probabilities(topk, frequencies)
    assert np.array_equal(fit.probabilities(topk.first(3), frequencies), all_places[:, :3])
    padded = fit.probabilities(topk.first(14), frequencies)
    assert np.array_equal(padded[:, :10], all_places)
    assert not padded[:, 10:].any()
    # What is computed at once is what the features say.
    logits = np.minimum.accumulate(place_features(topk, frequencies) @ fit.weights_F + fit.intercept, axis=1)
    np.testing.assert_allclose(all_places, np.interp(logits, fit.knots_M, fit.values_M), atol=1e-6)
    assert fit.probabilities(TopK(np.empty((0, 5), np.int64), np.empty((0, 5), np.float32)), frequencies).shape == (
        0,
        5,
    )


@given(
    arrays.arrays(np.int64, (3, 4), elements=st.integers(-1, 20)),
    arrays.arrays(np.float32, (3, 4), elements=st.floats(-(2.0**60), 2.0**60, width=32)),
)
def test_any_score_has_a_probability(ids, scores):
    found = FITTED.probabilities(TopK.rank(ids, scores), np.repeat([500, 50, 2], 7))
    assert ((found >= 0) & (found <= 1)).all()
    assert (np.diff(found, axis=1) <= 0).all()  # the order by score is an order by probability
    assert np.array_equal(found == 0, TopK.rank(ids, scores).ids < 0)


def test_probabilities_of_a_request_cost_less_than_a_millisecond_of_cpu_time():
    topk, frequencies, _, hits = scored(1024, k=5)
    fit = Calibration.fit(topk, hits, frequencies)

    def seconds():
        started = time.thread_time()
        fit.probabilities(topk, frequencies)
        return time.thread_time() - started

    # The first of up to 200 tries that is not disturbed by other work on the machine.
    assert any(seconds() < 1e-3 for _ in range(200))


# Halves.


def places_of(topk, hits, frequencies):
    rows, columns = np.nonzero(hits)
    positives = sparse.csr_array(
        (np.ones(len(rows)), (rows, topk.ids[rows, columns])), shape=(len(topk), len(frequencies))
    )
    return Places.of(topk, positives, None, frequencies)


def test_a_text_is_judged_by_a_fit_to_others():
    topk, frequencies, _, hits = scored(400)
    places = places_of(topk, hits, frequencies)
    calibration, found = fit_calibration(places)
    # Right labels of one text are others now: its own probabilities stay, those of the other half do not.
    changed = hits.copy()
    changed[0] = ~hits[0]
    _, moved = fit_calibration(places_of(topk, changed, frequencies))
    differ = (moved != found).any(axis=1)
    assert not differ[0]
    assert 190 <= differ.sum() <= 200
    assert np.array_equal(calibration.values_M, places.fit("both").values_M)
    assert calibration.measured["ece_after"] == places.error(found)
    assert calibration.measured["ece_before"] == places.error(np.clip(topk.scores, 0, 1))
    assert calibration.thresholds["best-f1"] == best_f1(found.ravel(), hits.ravel(), int(hits.sum()))
    # Labels that nobody knows cannot be told from noise: halves see through what a fit to itself would not.
    noise = np.random.default_rng(5).random(hits.shape) < 0.5
    held = fit_calibration(places_of(topk, noise, frequencies))[0].measured["ece_after"]
    itself = places_of(topk, noise, frequencies)
    assert held > itself.error(itself.fit("both").probabilities(topk, frequencies))


def test_filter_pairs_are_taken_out_before_places_are_counted():
    topk, frequencies, _, _ = scored(50, k=12)
    best = sparse.csr_array((np.ones(50, dtype=bool), (np.arange(50), topk.ids[:, 0])), shape=(50, len(frequencies)))
    positives = sparse.csr_array((50, len(frequencies)))
    places = Places.of(topk, positives, best, frequencies)
    assert np.array_equal(places.topk.ids, topk.ids[:, 1:][:, :PLACES])
    assert places.topk.k == PLACES > SHOWN


def test_calibration_needs_enough_texts_and_a_valid_precision():
    topk, frequencies, _, hits = scored(MIN_TEXTS - 1)
    with pytest.raises(DataError, match="at least 20 texts to be fitted to, but there are 19; take more"):
        fit_calibration(places_of(topk, hits, frequencies))
    topk, frequencies, _, hits = scored(40)
    with pytest.raises(DataError, match="--precision must be above 0 and at most 1, but is 90"):
        fit_calibration(places_of(topk, hits, frequencies), precision=90)
    nothing = places_of(topk, np.zeros_like(hits), frequencies)
    assert fit_calibration(nothing)[0].thresholds == {}


# In the model.


def test_training_leaves_probabilities_that_hold_on_test(folder):
    model = Model.load(folder)
    measured = model.metrics["calibration"]
    assert measured["num_texts"] == model.scorer.calibration.measured["num_texts"] == 50
    assert set(measured["thresholds"]) >= {"best-f1"}
    card = (folder / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "## Probabilities" in card
    assert f"| best-f1 | {measured['thresholds']['best-f1']['probability']:.3f} |" in card
    found = calibrate(folder, DATA, check=True)
    assert found["num_texts"] == 400
    assert found["ece_after"] < 0.5 * found["ece_before"]
    assert found["ece_after"] < 0.08  # 50 texts decided it
    assert Model.load(folder).scorer.calibration.as_dict() == model.scorer.calibration.as_dict()


@pytest.mark.parametrize("head", ["dual", "classifier"])
def test_probabilities_of_a_head_alone_are_those_of_its_whole_scores(head, monkeypatch):
    fitted_to = []
    fit = Places.of
    monkeypatch.setattr(Places, "of", lambda topk, *more: fitted_to.append(topk) or fit(topk, *more))
    alone = ["heads.dual=false"] if head == "classifier" else ["heads.classifier=false"]
    settings = [*SMALL, *alone, "train.decay_epochs=0", "predict.knn=0", "predict.choose_knn=false"]
    model = train(DATA, "auto", settings=[*settings, "predict.choose_label_prior=false", "predict.label_prior=0"])
    assert model.scorer.calibration is not None
    searched = model.topk(list(DATA.test.texts), 1).scores
    # Texts of one making: the scores that probabilities were fitted to are those that a search gives.
    assert np.mean(fitted_to[0].scores[:, 0]) == pytest.approx(np.mean(searched), rel=0.25)


def test_a_text_without_a_known_word_has_no_confident_answer(folder):
    random = ["qwertz asdfgh", "zzyzx", "", "?", *random_texts(["qwertyuiopasdfghjklzxcvbnm"], 100)]
    rows = list(predict_rows(Model.load(folder), random, k=5))
    assert [row["known"] for row in rows] == [0] * len(random)
    written = [row["labels"][0]["probability"] for row in predict_rows(Model.load(folder), list(DATA.test.texts), k=1)]
    assert max(label["probability"] for row in rows for label in row["labels"]) < 0.5 * np.mean(written) < 0.5
    found = CliRunner().invoke(app, ["predict", str(folder), "-k", "1"], input="qwertz asdfgh\nw0a w1b qwertz\n").stdout
    assert [line for line in found.splitlines() if line[0] != " "] == [
        "qwertz asdfgh  (no known words)",
        "w0a w1b qwertz",
    ]


def test_trust_changes_no_place_and_leaves_known_texts_as_they_are(folder):
    model = Model.load(folder)
    texts = list(DATA.test.texts)
    best = model.topk(texts, 5)
    shares = model.known_shares(texts)
    assert shares.known_N.min() == 1
    assert np.array_equal(model.probabilities(best, known=shares), model.probabilities(best))
    half_known = model.topk([f"{text} qwertz" for text in texts], 5)
    found = model.probabilities(half_known, known=model.known_shares([f"{text} qwertz" for text in texts]))
    plain = model.probabilities(half_known)
    assert (found <= plain).all()
    assert ((np.diff(plain, axis=1) > 0) | (np.diff(found, axis=1) <= 0)).all()
    # A calibration of an older model has no trust, and is read.
    older = model.scorer.calibration.as_dict()
    del older["trust"]
    assert Calibration.from_dict(older).trust is None


def test_simulating_the_decay_phase_does_not_change_the_model(folder, tmp_path):
    plain = train(DATA, "auto", settings=[*SMALL, "train.simulate_decay_up_to=0"], out=tmp_path / "plain")
    for name in ("encoder.safetensors", "index/vectors_int8.numbers", "labels.jsonl"):
        assert (folder / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    simulated = Model.load(folder)
    assert plain.metrics["choice"] == simulated.metrics["choice"]
    # Else it would be in vain.
    assert plain.scorer.calibration.as_dict() != simulated.scorer.calibration.as_dict()


def test_the_simulated_decay_phase_does_not_train_on_the_validation_texts(monkeypatch):
    sizes, run, calibration = [], Trainer.run, Validation.fit

    def noted(self, **how):
        sizes.append(self.data.positives.shape[0])
        return run(self, **how)

    def fit_noted(self, *arguments):
        sizes.append("fit")
        return calibration(self, *arguments)

    monkeypatch.setattr(Trainer, "run", noted)
    monkeypatch.setattr(Validation, "fit", fit_noted)
    train(DATA, "auto", settings=SMALL)
    assert sizes == [190, 190, "fit", 240]


@pytest.mark.parametrize(
    ("phase", "done_again"), [("simulated-decay", ["simulated-decay", "decay"]), ("decay", ["decay"])]
)
def test_a_stopped_and_resumed_run_has_the_same_probabilities(folder, tmp_path, monkeypatch, phase, done_again):
    with stopped_in_phase(phase, 4, monkeypatch):
        train(DATA, "auto", settings=SMALL, out=tmp_path / "model")
    step, steps = Trainer._step, [phase] * 4

    def noted(self, rows, number):
        steps.append(self.folder.name)
        return step(self, rows, number)

    monkeypatch.setattr(Trainer, "_step", noted)
    num_steps = {"simulated-decay": 32, "decay": 40}
    train(DATA, "auto", settings=SMALL, out=tmp_path / "model", resume=True)
    assert {name: steps.count(name) for name in steps} == {name: num_steps[name] for name in done_again}
    for name in ("calibration.json", "encoder.safetensors", "index/vectors_int8.numbers"):
        assert (tmp_path / "model" / name).read_bytes() == (folder / name).read_bytes()


def test_too_few_or_no_validation_texts_give_no_probabilities(tmp_path):
    few = Dataset("few", DATA.labels, DATA.train.take(np.arange(60)), DATA.test)
    for data, changed in ((few, "train.validation=0.1"), (DATA, "train.validation=0.0")):
        settings = [*SMALL, "train.epochs=1", "train.decay_epochs=1", changed]
        model = train(data, "auto", settings=settings)
        assert model.scorer.calibration is None
        assert model.probabilities(model.topk(["w1b"], 3)) is None
        assert "calibration" not in model.metrics
    (row,) = predict_rows(model, iter(["w1b"]), 3, None)
    assert "probability" not in row["labels"][0]
    with pytest.raises(ModelError, match=r"this one has none; make one on texts .* unidex calibrate MODEL DATA"):
        list(predict_rows(model, iter(["w1b"]), 3, None, 0.5))
    model.save(tmp_path / "old")
    assert not (tmp_path / "old" / "calibration.json").exists()
    assert Model.load(tmp_path / "old").scorer.calibration is None
    with pytest.raises(ModelError, match="this one has none"):
        calibrate(tmp_path / "old", DATA, check=True)
    # And it can get them.
    calibrate(tmp_path / "old", DATA)
    assert Model.load(tmp_path / "old").scorer.calibration is not None


def test_predictions_below_the_minimum_probability_are_left_out(folder):
    model = Model.load(folder)
    texts = list(DATA.test.texts)[:50]
    topk = model.topk(texts, 5)
    wanted = model.probabilities(topk)
    assert wanted.shape == (50, 5)
    rows = list(predict_rows(model, iter(texts), 5, None))
    found = [[label["probability"] for label in row["labels"]] for row in rows]
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    best = model.scorer.calibration.thresholds["best-f1"].probability
    for asked, least in ((0.5, 0.5), ("0.5", 0.5), ("best-f1", best), (0, 0), (1, 1)):
        rows = predict_rows(model, iter(texts), 5, None, asked)
        assert [len(row["labels"]) for row in rows] == (wanted >= least).sum(axis=1).tolist()


def test_probabilities_are_of_the_mode_they_were_fitted_for(folder):
    model = Model.load(folder)
    assert model.probabilities(model.topk(["w1b"], 3, mode="dual"), "dual") is None
    (row,) = predict_rows(model, iter(["w1b"]), 3, "dual")
    assert "probability" not in row["labels"][0]
    with pytest.raises(ModelError, match="fitted for, both, but the mode is dual; leave one of the two out"):
        model.min_probability(0.5, "dual")


def test_an_added_label_has_the_probabilities_of_tail_labels(folder):
    model = Model.load(folder)
    model.add_labels(["quite new words"], ["new"])
    topk = model.topk(["quite new words"], 3)
    assert topk.ids[0, 0] == 24
    known = np.append(DATA.label_frequencies(), 0)
    assert np.array_equal(model.probabilities(topk), model.scorer.calibration.probabilities(topk, known))


@pytest.mark.parametrize("asked", ["most", "", "nan", "-0.1", 1.5, "precision-0.77", "inf"])
def test_a_minimum_probability_must_be_a_number_or_a_threshold(folder, asked):
    with pytest.raises(DataError, match=r"a number from 0 to 1 or one of the model's thresholds \(best-f1"):
        Model.load(folder).min_probability(asked)


def test_json_keeps_every_digit(folder):
    fitted = Model.load(folder).scorer.calibration
    again = Calibration.from_dict(json.loads(fitted.as_json()))
    topk, frequencies, _, _ = scored(100)
    assert np.array_equal(again.probabilities(topk, frequencies), fitted.probabilities(topk, frequencies))
    assert again.thresholds == fitted.thresholds
    assert again.as_dict() == fitted.as_dict()


@pytest.mark.parametrize(
    "change",
    [
        {"knots": [1.0, 0.0]},
        {"knots": [0.0]},
        {"values": [0.5, 0.2]},
        {"values": [0.5, 1.2]},
        {"values": [-0.5, 0.2]},
        {"knots": []},
        {"weights": {"score": 1.0}},
        {"weights": [1.0]},
        {"intercept": "0"},
        {"thresholds": {"best-f1": {"probability": 0.5}}},
        {"code": "x"},
        {"intercept": float("nan")},
    ],
)
def test_a_damaged_calibration_is_refused(change):
    good = Calibration(np.zeros(6), 0.0, np.array([0.0, 1.0]), np.array([0.2, 0.5]), "both", {}, {})
    Calibration.from_dict(good.as_dict())
    with pytest.raises(ModelError, match="calibrate anew"):
        Calibration.from_dict(good.as_dict() | change)


def test_calibrate_fits_to_the_texts_that_are_named(folder, tmp_path):
    Model.load(folder).save(tmp_path / "model")
    before = evaluate(Model.load(folder), DATA).as_dict()
    found = calibrate(tmp_path / "model", DATA, precision=0.6)
    model = Model.load(tmp_path / "model")
    assert found["ece_after"] < 0.04
    assert model.scorer.calibration.measured["num_texts"] == 400
    assert set(model.scorer.calibration.thresholds) == {"best-f1", "precision-0.6"}
    assert model.metrics["calibration"]["data"] == "noisy"
    reached = found["thresholds"]["precision-0.6"]
    assert reached["precision"] >= 0.6
    assert reached == model.metrics["calibration"]["thresholds"]["precision-0.6"]
    for group in found["groups"]:
        assert group["probability"] == pytest.approx(group["share"], abs=0.08)
    # Scores are what they were.
    assert evaluate(model, DATA).as_dict() == before
    again = calibrate(tmp_path / "model", DATA, check=True)
    assert set(again["thresholds"]) == {"best-f1", "precision-0.6"}
    with pytest.raises(DataError, match="--split must be train or test, but is 'all'"):
        calibrate(tmp_path / "model", DATA, split="all")


def test_labels_of_data_are_matched_by_uid(folder, tmp_path):
    """A data set with its labels in another order, and one more, fits the same probabilities."""
    order = np.append(np.random.default_rng(3).permutation(24), 24)
    wide = sparse.csr_array(sparse.hstack([DATA.test.positives, sparse.csr_array((400, 1))]))
    texts, uids = [*DATA.labels.texts, "unknown"], [*DATA.labels.uids, "unknown"]
    labels = Labels(Texts.of([texts[label] for label in order]), Texts.of([uids[label] for label in order]))
    split = Split.of(DATA.test.texts, sparse.csr_array(wide[:, order]))
    other = Dataset("other", labels, replace(split), split)
    fits = []
    for name, data in (("same", DATA), ("other", other)):
        Model.load(folder).save(tmp_path / name)
        calibrate(tmp_path / name, data)
        fits.append(Model.load(tmp_path / name).scorer.calibration)
    np.testing.assert_allclose(fits[0].weights_F, fits[1].weights_F, atol=1e-4)
    np.testing.assert_allclose(fits[0].values_M[[0, -1]], fits[1].values_M[[0, -1]], atol=1e-4)


def test_command_line(folder, tmp_path):
    pytest.importorskip("matplotlib")

    def unidex(*words, said=None):
        return CliRunner().invoke(app, ["-q", *map(str, words)], input=said)

    Model.load(folder).save(tmp_path / "model")
    rows = [
        {"text": text, "labels": [f"L{label}" for label in DATA.test.positives[[row]].indices]}
        for row, text in enumerate(DATA.test.texts)
    ]
    file, picture = tmp_path / "new.jsonl", tmp_path / "reliability.svg"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    fit = ("calibrate", tmp_path / "model", file, "--test-fraction", 0.9)
    done = unidex(*fit, "--precision", 0.999, "--plot", picture)
    assert done.exit_code == 0, done.output
    assert "360 texts: expected calibration error 0." in done.stdout
    assert "best-f1\t0." in done.stdout
    assert "place 1\t360\t0." in done.stdout
    assert ("note: no threshold reaches precision 0.999" in done.stdout) == ("precision-0.999\t" not in done.stdout)
    assert "<svg" in picture.read_text(encoding="utf-8")
    found = json.loads(unidex(*fit, "--check", "--json").stdout)
    assert found["num_texts"] == sum(part["num_places"] for part in found["bins"]["after"]) / SHOWN == 360
    least = Model.load(tmp_path / "model").scorer.calibration.thresholds["best-f1"].probability
    predict = ("predict", tmp_path / "model")
    done = unidex(*predict, "--min-probability", "best-f1", "--json", said="w1b w2c\n")
    assert all(label["probability"] >= least - 1e-6 for label in json.loads(done.stdout)["labels"])
    done = unidex(*predict, "-k", 1, said="w1b w2c\n")
    assert done.stdout.splitlines()[1].split()[1].endswith("%")
    done = unidex(*predict, "--min-probability", "lots", said="w1b\n")
    assert "a minimum probability must be a number from 0 to 1" in str(done.exception)

"""The kernels in C compute what NumPy computes, bit for bit; without a compiler nothing is lost but time."""

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import unidex
from helpers.paths import ROOT
from helpers.synthetic import pages, topics
from unidex import native
from unidex.config import Features
from unidex.features.extractor import FeatureExtractor
from unidex.index import pq
from unidex.nn.bag_arrays import BagArrays
from unidex.scoring.lexical import LexicalPart
from unidex.scoring.ranked_search import rank_at_once
from unidex.sparse_rows import sparse_product
from unidex.storage.eight_bits import EightBitRows
from unidex.topk import TopK

WORDS = [
    "golden",
    "Ratio",
    "getHTTPPort_2",
    "straße",
    "北京",
    "a",
    "re",
    "red",
    "turtles",
    "turtle",
    "soup",
    "ﬁne",
    "x" * 40,
]
TEXTS = ["golden Ratio of turtles", "", "?", "getHTTPPort_2 golden golden 北京 soup", "red re a " * 9, "ﬁne straße"]


@pytest.fixture(scope="module")
def build():
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def compiled(build, tmp_path_factory):
    """The kernels as the sources are now: the installed ones, unless a source is newer. To compile takes 20 s."""
    file = build.SOURCES / build.NAME
    sources = [*build.SOURCES.glob("*.[ch]"), ROOT / "hatch_build.py"]
    if not file.exists() or file.stat().st_mtime <= max(source.stat().st_mtime for source in sources):
        file = tmp_path_factory.mktemp("kernels") / build.NAME
        reason = build.compile_kernels(file)
        if reason is not None:
            pytest.skip(f"the kernels cannot be compiled here: {reason}")
    spec = importlib.util.spec_from_file_location("unidex.native._kernels", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def both(compiled, monkeypatch):
    """Call a function by NumPy and by the kernels."""

    def call(function):
        monkeypatch.setattr(native, "kernels", None)
        plain = function()
        monkeypatch.setattr(native, "kernels", compiled)
        return plain, function()

    return call


def same_matrix(one, other):
    return one.shape == other.shape and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in ("data", "indices", "indptr")
    )


def same_places(one, other):
    return np.array_equal(one.ids, other.ids) and np.array_equal(one.scores, other.scores)


@pytest.mark.parametrize("seed", range(20))
def test_places(both, seed):
    rng = np.random.default_rng(seed)
    ids = rng.permuted(np.tile(np.arange(-3, 60), (5, 1)), axis=1)[:, : rng.integers(1, 60)]
    scores = rng.integers(-4, 4, ids.shape).astype(np.float32) * rng.choice([0.25, -0.0, 1e30])
    scores[rng.random(ids.shape) < 0.1] = -np.inf
    for k in (None, 1, 7, 80):
        assert same_places(*both(lambda k=k: TopK.rank(ids, scores, k)))
    matrix = sparse.csr_array(np.where(ids > 20, scores, 0).astype(np.float32))
    for k in (1, 7, 80):
        assert same_places(*both(lambda k=k: TopK.from_csr(matrix, k)))


def test_places_refuse_what_is_no_number(both):
    def refused():
        with pytest.raises(ValueError, match="NaN"):
            TopK.rank([[1]], [[np.nan]])
        return TopK.rank([[1 << 40, 3]], [[0.5, 0.5]])

    assert same_places(*both(refused))


@pytest.mark.parametrize("num_rows", [1, 3, 40])
@pytest.mark.parametrize("seed", range(5))
def test_products(both, num_rows, seed):
    rng = np.random.default_rng(seed)
    left, right = (
        sparse.csr_array(sparse.random_array(shape, density=0.1, dtype=np.float32, rng=rng))
        for shape in ((num_rows, 90), (90, 300))
    )
    right.data[rng.random(len(right.data)) < 0.2] *= -1
    for matrix in (left, right):
        matrix.sort_indices()
    plain, compiled = both(lambda: sparse_product(left, right))
    assert same_matrix(plain, compiled)


def test_products_of_many_columns(both):
    """Sums of many terms are made some columns at a time; there are columns between which nothing is."""
    rng = np.random.default_rng(0)
    left = sparse.csr_array(sparse.random_array((3, 40), density=0.5, dtype=np.float32, rng=rng))
    columns = np.unique(np.concatenate([rng.integers(9_000, size=4000), 200_000 + rng.integers(60_000, size=3000)]))
    chosen = rng.random((40, len(columns))) < 0.3
    rows, places = np.nonzero(chosen)
    values = rng.standard_normal(len(rows)).astype(np.float32)
    right = sparse.csr_array((values, (rows, columns[places])), shape=(40, 300_000))
    for matrix in (left, right):
        matrix.sort_indices()
    plain, compiled = both(lambda: sparse_product(left, right))
    assert plain.nnz > 10_000
    assert same_matrix(plain, compiled)


def test_columns_that_are_not_there_are_refused(compiled):
    values, starts = np.ones(1, dtype=np.float32), np.array([0, 1], dtype=np.int32)
    good, bad = np.zeros(1, dtype=np.int32), np.array([7], dtype=np.int32)
    for left, right in ((bad, good), (good, bad)):
        with pytest.raises(ValueError, match="within"):
            compiled.multiply(values, left, starts, values, right, starts, 1)
    with pytest.raises(ValueError, match="fit"):
        compiled.multiply(values, good, starts, values, good, np.array([0, 9], dtype=np.int32), 1)


@pytest.mark.parametrize("num_buckets", [0, 64])
@pytest.mark.parametrize("sublinear", [True, False])
def test_feature_rows(both, num_buckets, sublinear):
    settings = Features(chars=True, num_buckets=num_buckets, sublinear_tf=sublinear, min_df=1, lead_weight=1.0, lead=2)
    extractor = FeatureExtractor.fit(TEXTS, WORDS, settings)
    texts = [*TEXTS, "golden " * 3000, *WORDS, "never seen"]
    for function in (extractor.transform, extractor.transform_few):
        assert same_matrix(*both(lambda function=function: function(texts)))


def test_sums_of_eight_bit_rows(both):
    extractor = FeatureExtractor.fit(TEXTS, WORDS, Features(chars=True, min_df=1, num_buckets=8))
    rng = np.random.default_rng(0)
    table = EightBitRows.of(rng.normal(size=(extractor.num_features, 128)).astype(np.float32))
    encoder = BagArrays(extractor, table)
    for texts in (TEXTS, TEXTS * 90):
        plain, compiled = both(lambda texts=texts: encoder(encoder.prepare(texts)))
        assert np.array_equal(plain, compiled)


@pytest.mark.parametrize("has_further", [False, True])
def test_lexical_part(both, has_further):
    from unidex.data.concepts import Concept, Term

    concepts = {1: Concept(texts=(Term("sea food"), Term("Fisch", "de")))} if has_further else None
    part = LexicalPart.of([*WORDS, "turtle soup", "golden ratio"], concepts)
    rng = np.random.default_rng(0)
    for texts in (TEXTS, TEXTS * 7):
        plain, compiled = both(lambda texts=texts: part.rows(texts))
        assert same_matrix(plain, compiled)
        ids = rng.integers(0, part.num_labels, (len(texts), 9))
        one, other = both(lambda rows=plain, ids=ids: part.overlaps(rows, ids))
        assert all(np.array_equal(one[name], other[name]) for name in one)
        assert same_places(*both(lambda rows=plain: part.search(rows, 4)))


@pytest.mark.parametrize("has_further", [False, True])
def test_matches(both, has_further):
    from unidex.data.concepts import Concept, Term

    concepts = {0: Concept(texts=(Term("red soup"), Term("soup"))), 2: Concept(texts=(Term("a"),))}
    labels = LexicalPart.of(
        [*WORDS, "turtle soup", "soup (dish)", "", "a red"], concepts if has_further else None
    ).matches
    texts = [*TEXTS, "soup of red turtle soup: a dish", "soup, turtle", "red"]
    plain, compiled = both(lambda: labels.find(texts))
    assert 0 < plain.names_M.sum() < len(plain.names_M)
    assert same_matrix(plain.places_NL, compiled.places_NL)
    for name in ("counts_M", "firsts_M", "rows_M", "names_M"):
        assert np.array_equal(getattr(plain, name), getattr(compiled, name))
    assert same_places(*both(lambda: labels.search(compiled, 4)))
    ids = np.random.default_rng(0).integers(-1, labels.num_labels, (len(texts), 9))
    for found in (compiled, compiled[2:5]):
        some = ids[: found.places_NL.shape[0]]
        one, other = both(lambda found=found, some=some: labels.features(found, np.maximum(some, 0)))
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("seed", range(30))
def test_texts_of_any_characters(both, seed):
    rng = np.random.default_rng(seed)
    letters = [*"aB3_- #\nßÉǅ北ﬁİ", "e\u0301", "\u200d", "\U0001f600", chr(rng.integers(1, 0xD800))]
    texts = ["".join(rng.choice(letters, size=rng.integers(0, 60))) for _ in range(6)]
    settings = Features(chars=True, chars_min=int(rng.integers(2, 5)), chars_max=5, min_df=1, num_buckets=16)
    extractor = FeatureExtractor.fit(texts, texts[:2], settings)
    assert same_matrix(*both(lambda: extractor.transform(texts)))
    part = LexicalPart.of(texts)
    assert same_matrix(*both(lambda: part.rows(texts)))
    assert same_matrix(*both(lambda: part.matches.find(texts).places_NL))


@pytest.fixture(scope="module")
def model():
    dataset = topics(num_labels=40, num_train=700)
    settings = ["encoder.dim=64", "features.min_df=1", "train.epochs=1", "train.validation=0.5", "train.decay_epochs=1"]
    settings += ["train.simulate_decay_up_to=0", "augment.method=none", "pool.try_hard_negatives=0"]
    return unidex.train(dataset, recipe="auto", settings=settings), list(dataset.train.texts[:60])


@pytest.mark.parametrize("k", [1, 5, 60])
def test_a_whole_model(both, model, k):
    fitted, texts = model
    assert "place" in " ".join(fitted.scorer.ranker().features), "a ranker of few texts reads fewer features"
    for some in ([*texts, "", "never seen", "w" * 500], texts[:1], texts[:7]):
        assert same_places(*both(lambda some=some: fitted.topk(some, k)))


@pytest.fixture(scope="module")
def coded_model():
    """A model whose index searches by codes."""
    dataset = topics(num_labels=700, num_train=2000)
    settings = ["encoder.dim=64", "features.min_df=1", "train.epochs=1", "train.validation=0.5", "train.decay_epochs=1"]
    settings += ["train.simulate_decay_up_to=0", "augment.method=none", "pool.try_hard_negatives=0"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pq, "CODED_FROM", 100)
        return unidex.train(dataset, recipe="auto", settings=settings), list(dataset.train.texts[:60])


@pytest.mark.parametrize("k", [3, 57, 90])
def test_a_search_in_one_call_is_that_of_all_steps(both, coded_model, k, monkeypatch):
    fitted, texts = coded_model
    scorer, some = fitted.scorer, [*texts, "", "never seen", "w" * 500, " ".join(texts)]
    assert scorer.index.shortlist(fitted.queries(texts[:1]).vectors, 30) is not None
    plain, at_once = both(lambda: fitted.topk(some, k))
    queries = fitted.queries(some)
    by_call = rank_at_once(scorer, scorer.ranker(), queries, k)
    assert by_call is not None
    assert same_places(by_call.first(3), plain.first(3))
    assert same_places(plain, at_once)
    monkeypatch.setattr("unidex.scoring.scorer.rank_at_once", lambda *given: None)
    assert same_places(fitted.topk(some, k), at_once)
    for place, text in enumerate(some):
        assert same_places(fitted.topk([text], k), at_once.rows(place, place + 1))


@pytest.fixture(scope="module")
def linked_model():
    """A model whose ranker reads links."""
    dataset = pages(num_pages=1200)
    settings = ["encoder.dim=64", "features.min_df=1", "train.epochs=1", "train.validation=0.5", "train.decay_epochs=1"]
    settings += ["train.simulate_decay_up_to=0", "augment.method=none", "pool.try_hard_negatives=0"]
    return unidex.train(dataset, recipe="auto", settings=settings), list(dataset.test.texts[:60])


def test_links_are_read_in_one_call_and_in_all_steps(both, linked_model):
    fitted, texts = linked_model
    scorer = fitted.scorer
    assert "links" in scorer.ranker().features
    some = [*texts, "", "never seen", " ".join(texts)]
    plain, at_once = both(lambda: fitted.topk(some, 5))
    assert same_places(plain, at_once)
    queries = fitted.queries(some)
    assert queries.links.nnz > 100
    by_call = rank_at_once(scorer, scorer.ranker(), queries, 5)
    assert by_call is not None
    assert same_places(by_call, at_once)
    hidden = np.unique(at_once.ids[:, 0])
    plain, compiled = both(lambda: fitted.topk(some, 5, forbidden=hidden))
    assert same_places(plain, compiled)
    assert not np.isin(compiled.ids, hidden).any()


def test_a_search_without_some_labels_takes_all_steps(both, coded_model):
    fitted, texts = coded_model
    first = fitted.topk(texts, 3).ids[:, 0]
    plain, compiled = both(lambda: fitted.topk(texts, 3, forbidden=np.unique(first)))
    assert same_places(plain, compiled)
    assert not np.isin(compiled.ids, first).any()


def test_a_search_refuses_numbers_that_are_not_there(compiled, coded_model, monkeypatch):
    fitted, texts = coded_model
    monkeypatch.setattr(native, "kernels", compiled)
    scorer = fitted.scorer
    queries, beyond = fitted.queries(texts[:2]), np.full((2, 180), 10**6)
    monkeypatch.setattr(scorer.index, "shortlist", lambda *given: beyond, raising=False)
    with pytest.raises(ValueError, match="within"):
        rank_at_once(scorer, scorer.ranker(), queries, 3)
    beyond[:] = -1
    assert rank_at_once(scorer, scorer.ranker(), queries, 3) is None


def test_features_of_a_model(both, model):
    fitted, texts = model
    ids = np.tile(np.array([[3, 0, 7, 2]]), (len(texts), 1))
    plain, compiled = both(lambda: fitted.scorer.describe(fitted.queries(texts), ids).features)
    assert plain.keys() == compiled.keys()
    assert all(np.array_equal(plain[name], compiled[name]) for name in plain)


def test_without_a_compiler_the_package_is_built_all_the_same(build, monkeypatch, tmp_path):
    monkeypatch.setenv("CC", "no-such-compiler")
    assert "no-such-compiler" in build.compile_kernels(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("UNIDEX_NATIVE", "0")
    assert build.compile_kernels(tmp_path / "file") == "UNIDEX_NATIVE is 0"


def test_the_environment_leaves_kernels_out():
    words = "from unidex import native; print(native.kernels)"
    found = subprocess.run(
        [sys.executable, "-c", words],
        env=os.environ | {"UNIDEX_NATIVE": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "None\n"

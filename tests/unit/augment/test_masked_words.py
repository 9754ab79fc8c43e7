"""Synonyms by a masked language model: only words change, the model decides into what, and the seed decides which."""

import pytest

from helpers.synthetic import topics
from helpers.tiny_transformer import VOCABULARY
from unidex.augment.masked_words import replace_masked
from unidex.augment.word_changes import with_copies
from unidex.errors import ConfigError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A masked language model that expects "hat" everywhere, then "blue", then parts of words and special tokens."""
    folder = tmp_path_factory.mktemp("mlm")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY))
    tokenizer = transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt"))
    config = transformers.BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=16,
    )
    network = transformers.BertForMaskedLM(config)
    with torch.no_grad():
        bias = network.get_output_embeddings().bias
        for word, value in {"##s": 40.0, "[SEP]": 30.0, "hat": 20.0, "blue": 15.0}.items():
            bias[VOCABULARY.index(word)] = value
        bias[VOCABULARY.index("red")] = bias[VOCABULARY.index("the")] = -50
        for word in ("shoe", "a", "of"):
            bias[VOCABULARY.index(word)] = -50
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_words_become_what_the_model_expects_and_never_themselves(model):
    words = {"hat", "blue", "red", "the", "shoe", "a", "of"}
    for seed in range(3):
        changed, empty = replace_masked(["hat, shoe!", ""], model, 1.0, seed)
        first, second = changed.removesuffix("!").split(", ")
        assert first in words - {"hat"}
        assert second in words - {"shoe"}
        assert empty == ""
    found = {replace_masked(["shoe"], model, 1.0, seed)[0] for seed in range(12)}
    # Of the three most likely words; parts of words and special tokens are none.
    assert {"hat", "blue"} < found
    assert len(found) == 3


def test_the_share_and_the_seed_decide_which_words_change(model):
    texts = ["red shoe of the hat"] * 40
    once, again, other = (replace_masked(texts, model, 0.5, seed) for seed in (1, 1, 2))
    assert once == again != other
    kept = sum(old == new for text in once for old, new in zip(texts[0].split(), text.split(), strict=True))
    assert 60 < kept < 140
    assert replace_masked(texts, model, 0.0, 1) == texts


def test_a_word_beyond_the_length_of_the_model_stays(model):
    text = " ".join(["red"] * 40)
    assert replace_masked([text], model, 1.0, 0)[0].split()[20:] == ["red"] * 20


def test_copies_of_a_data_set_and_models_without_a_head(model, tmp_path):
    data = topics(num_train=6, num_test=2)
    copies = with_copies(data, "synonyms", 0.5, f"mlm:{model}", seed=0)
    assert len(copies.train) == 12
    assert list(copies.train.texts)[:6] == list(data.train.texts)
    with pytest.raises(ConfigError, match="must name a masked language model"):
        replace_masked(["a"], str(tmp_path), 1.0, 0)

"""A label tree whose levels read layers of a transformer (CascadeXML), on a tiny one with random weights."""

import json

import numpy as np
import pytest
import torch
from scipy import sparse

from helpers.tiny_transformer import TEXTS, loaded
from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.texts import Texts
from unidex.errors import ConfigError
from unidex.model.model import Model
from unidex.verbs.train import train

transformers = pytest.importorskip("transformers", reason="the transformers extra is not installed")

WORDS = ["red", "blue", "shoe", "hat"]


def words(num_texts=48):
    """A text's labels are the words that stand in it."""
    rng = np.random.default_rng(0)

    def split(count):
        dense = np.zeros((count, len(WORDS)), dtype=np.float32)
        texts = []
        for row in range(count):
            chosen = rng.permutation(len(WORDS))[: 1 + row % 2]
            dense[row, chosen] = 1
            texts.append(" ".join(rng.permutation([*(WORDS[label] for label in chosen), "a", "of", "the"])))
        return Split.of(Texts.of(texts), sparse.csr_array(dense), None)

    return Dataset("words", Labels(Texts.of(WORDS), Texts.of(WORDS)), split(num_texts), split(16))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_layers_are_pooled_in_one_pass_and_stand_side_by_side(tiny, small_chunks, pooling):
    encoder = loaded(tiny, pooling=pooling)
    rows = encoder.prepare(TEXTS)
    last, (one, both) = encoder.at_layers(rows, [[1], [2, 1]])
    torch.testing.assert_close(last, encoder(rows))
    # The second of two layers is the last.
    torch.testing.assert_close(both, torch.cat([last, one], dim=1))
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(tiny))
    model = transformers.AutoModel.from_pretrained(str(tiny)).eval()
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**batch, output_hidden_states=True).hidden_states[1]
    mask = batch["attention_mask"][..., None]
    wanted = hidden[:, 0] if pooling == "cls" else (hidden * mask).sum(1) / mask.sum(1)
    torch.testing.assert_close(one, wanted, atol=1e-5, rtol=0)
    assert [part.shape for part in encoder.at_layers(rows[:0], [[1, 2]])[1]] == [(0, 64)]


def settings_of(folder, *more):
    return [
        "encoder.kind=transformer",
        f"encoder.path={folder}",
        "encoder.max_length=16",
        "tree.levels=[2, 3]",
        "tree.layers=[[1, 2], [1]]",
        "tree.dropout=[0.0]",
        "heads.dropout=0.0",
        "train.batch_size=16",
        "train.epochs=8",
        "train.lr_encoder=2e-3",
        "train.lr_classifier=0.05",
        "loss.temperature=0.2",
        *more,
    ]


def test_levels_read_their_layers_and_the_folder_predicts_the_same(tiny, tmp_path):
    model = train(words(), "cascadexml", settings=settings_of(tiny), out=tmp_path / "model")
    assert [table.dim for table in model.network.tree.tables] == [65, 33]
    losses = [json.loads(line)["loss"] for line in model.log.splitlines()]
    assert min(losses[1:]) < losses[0]
    again = Model.load(tmp_path / "model")
    texts = list(words().test.texts)
    first, second = model.predict(texts, 3), again.predict(texts, 3)
    assert first.ids.tolist() == second.ids.tolist()
    assert first.scores.tolist() == second.scores.tolist()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("tree.layers=[[3], [1]]", r"1 to 2, but are \[\[3\], \[1\]\]"),
        ("tree.layers=[[1]]", "must be one list per level"),
    ],
)
def test_layers_that_are_not_there_are_refused(tiny, setting, said):
    with pytest.raises(ConfigError, match=said):
        train(words(), "cascadexml", settings=settings_of(tiny, setting))

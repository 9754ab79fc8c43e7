"""Small generated problems whose answers are known: a text holds the words of its labels among words of no meaning."""

import numpy as np
import torch
from scipy import sparse

from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.texts import Texts
from unidex.encoders.registry import build_encoder
from unidex.nn.assembly import build_network
from unidex.training.training_set import TrainingSet


def topics(num_labels=24, num_train=240, num_test=60, seed=0, labels_per_text=2, filters=False):
    """Each label has two words of its own; a text has one or two labels and shows both words of each."""
    rng = np.random.default_rng(seed)
    words = [f"w{number}{chr(97 + number % 26)}" for number in range(2 * num_labels + 40)]
    label_words = [words[2 * label : 2 * label + 2] for label in range(num_labels)]
    noise = words[2 * num_labels :]

    def split(count):
        texts, dense = [], np.zeros((count, num_labels), dtype=np.float32)
        for row in range(count):
            chosen = rng.permutation(num_labels)[: 1 + row % labels_per_text]
            dense[row, chosen] = 1
            said = [word for label in chosen for word in label_words[label]] + list(rng.choice(noise, 3))
            texts.append(" ".join(rng.permutation(said)))
        pairs = sparse.csr_array(np.roll(dense, 1, axis=1) > 0) if filters else None
        return Split.of(Texts.of(texts), sparse.csr_array(dense), pairs)

    labels = Labels(Texts.of([" ".join(pair) for pair in label_words]), Texts.of([f"L{n}" for n in range(num_labels)]))
    return Dataset("topics", labels, split(num_train), split(num_test))


# A recipe small enough for a test: seconds, not minutes.
QUICK = [
    "encoder.dim=32",
    "features.min_df=1",
    "train.epochs=6",
    "train.batch_size=32",
    "pool.start=2",
    "pool.refresh_every=2",
    "pool.hard_negatives=2",
]


def begun(config, data):
    """A network as a run begins with it, and what it is trained on."""
    torch.manual_seed(0)
    encoder = build_encoder(config, data.train.texts, data.labels.texts)
    network = build_network(config, encoder, data.num_labels)
    texts, labels = encoder.prepare(data.train.texts), encoder.prepare(data.labels.texts)
    return network, TrainingSet(texts, labels, data.train.positives, data.train.filter_pairs)


def pages(num_pages=300, seed=0):
    """Pages that refer to each other in groups of four, one of which is a test text.

    A text begins with the name of its page and says nothing of the others: only who refers to a page tells its labels.
    """
    rng = np.random.default_rng(seed)
    groups = rng.permutation(num_pages).reshape(-1, 4)
    others = np.empty((num_pages, 3), dtype=np.int64)
    for place in range(4):
        others[groups[:, place]] = np.delete(groups, place, axis=1)
    names = [f"name{number} of{number}" for number in range(num_pages)]
    noise = [f"noise{number}" for number in range(30)]

    def split(rows):
        texts = [f"{names[row]} {' '.join(rng.choice(noise, 4))}" for row in rows]
        dense = np.zeros((len(rows), num_pages), dtype=np.float32)
        dense[np.arange(len(rows))[:, None], others[rows]] = 1
        return Split.of(Texts.of(texts), sparse.csr_array(dense))

    labels = Labels(Texts.of(names), Texts.of([f"P{number}" for number in range(num_pages)]))
    test = groups[:, 0]
    return Dataset("pages", labels, split(np.setdiff1d(np.arange(num_pages), test)), split(test))

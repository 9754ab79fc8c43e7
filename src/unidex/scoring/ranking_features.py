"""Ranking features: what is known of a pair of a text and a candidate label.

A feature is one function from `Pairs` to an array N x K. Its name is the name of the feature; a ranker lists the names
it reads. To add a feature, write its function here and decorate it with `ranking_feature`. Of every feature ``f`` there
are two more: ``f_gap``, the distance to the highest value among the candidates of the text, and ``f_place``, the number
of candidates of the text with a higher value.

Shapes: N texts, K candidates, L labels, D columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.index import Index
from unidex.scoring.layout import Head, Layout
from unidex.scoring.lexical import LexicalPart
from unidex.scoring.linear_part import LinearPart
from unidex.scoring.pretrained import PretrainedPart
from unidex.scoring.queries import Queries
from unidex.scoring.rankers import WeightedSum, sum_parts
from unidex.sparse_rows import values_at

# Their rows then fit the caches of a processor; more texts at once are slower.
_TEXTS_AT_ONCE = 32


@dataclass(frozen=True, eq=False)
class KnnFound:
    """What the kNN part found.

    Attributes:
        scores_NL: of labels, without their weight.
        nearest_N: similarity of the nearest training text.
    """

    scores_NL: sparse.csr_array
    nearest_N: NDArray[np.float32]

    def __getitem__(self, texts: Any) -> KnnFound:
        return KnnFound(self.scores_NL[texts], self.nearest_N[texts])


@dataclass(frozen=True, eq=False)
class Pairs:
    """Texts and their candidates, and all that features are computed from.

    Attributes:
        layout: the layout of queries and rows.
        index: the rows of labels.
        queries: the queries of the texts.
        ids_NK: candidates of each text; 0 where there is none.
        is_there_NK: where there is one.
        frequencies_L: number of training texts per label.
        knn: what the kNN part found; None where it is not used.
        lexical: the lexical part; None where there is none.
        pretrained: the pretrained part; None where there is none.
        pretrained_knn: its kNN scores of labels, N x L; None where it is not used.
        linear: the linear part; None where there is none.
    """

    layout: Layout
    index: Index
    queries: Queries
    ids_NK: NDArray[np.int64]
    is_there_NK: NDArray[np.bool_]
    frequencies_L: NDArray[np.int64]
    knn: KnnFound | None
    lexical: LexicalPart | None
    pretrained: PretrainedPart | None = None
    pretrained_knn: sparse.csr_array | None = None
    linear: LinearPart | None = None
    _computed: dict[str, NDArray[Any]] = field(default_factory=dict)

    def feature(self, name: str) -> NDArray[Any]:
        """A feature by name, N x K, computed once."""
        if name not in self._computed:
            base, underscore, kind = name.rpartition("_")
            if underscore and kind in _COMPARED and name not in FEATURES:
                self._computed[name] = _COMPARED[kind](np.where(self.is_there_NK, self.feature(base), -np.inf))
            else:
                self._computed[name] = FEATURES[name](self)
        return self._computed[name]

    def compare(self, names: Sequence[str]) -> None:
        """Compute all comparisons among these features at once, which for a few texts costs as much as one."""
        for kind, function in _COMPARED.items():
            compared = [name for name in names if name.endswith(f"_{kind}") and name not in FEATURES]
            bases = [name.removesuffix(f"_{kind}") for name in compared]
            if bases:
                values = np.where(self.is_there_NK, np.stack([self.feature(base) for base in bases]), -np.inf)
                self._computed.update(zip(compared, function(values), strict=True))

    @cached_property
    def overlaps(self) -> dict[str, NDArray[np.float32]]:
        """The features of the lexical part."""
        assert self.lexical is not None
        assert self.queries.words is not None
        return self.lexical.overlaps(self.queries.words, self.ids_NK)

    @cached_property
    def matches(self) -> dict[str, NDArray[np.float32]]:
        """The features of matches."""
        assert self.lexical is not None
        assert self.lexical.matches is not None
        assert self.queries.matches is not None
        return self.lexical.matches.features(self.queries.matches, self.ids_NK)

    @cached_property
    def head_scores(self) -> dict[Head, NDArray[np.float32]]:
        """The score of each pair by each head."""
        return {
            head: self.index.inner_products(
                self.layout.head_queries(self.queries.vectors, head), self.ids_NK, self.layout.first_column(head)
            )
            for head in self.layout.heads
        }


Feature = Callable[[Pairs], NDArray[Any]]
FEATURES: dict[str, Feature] = {}


def _gap(values_NK: NDArray[Any]) -> NDArray[np.float32]:
    """The distance to the highest value of the text; there may be dimensions before N.

    >>> _gap(np.array([[1.0, 3.0]])).tolist()
    [[2.0, 0.0]]
    """
    highest = values_NK.max(axis=-1, keepdims=True, initial=-np.inf)
    found: NDArray[np.float32] = (np.where(np.isfinite(highest), highest, 0) - values_NK).astype(np.float32)
    return found


def _place(values_NK: NDArray[Any]) -> NDArray[np.float32]:
    """The number of candidates with a higher value; there may be dimensions before N.

    >>> _place(np.array([[1.0, 3.0, 1.0]])).tolist()
    [[1.0, 0.0, 1.0]]
    """
    # Candidates are few dozens: comparing all of them costs less than sorting.
    found: NDArray[np.float32] = (values_NK[..., None, :] > values_NK[..., :, None]).sum(axis=-1, dtype=np.float32)
    return found


_COMPARED: dict[str, Callable[[NDArray[Any]], NDArray[np.float32]]] = {"gap": _gap, "place": _place}


def ranking_feature(function: Feature) -> Feature:
    """Register a feature under the name of its function."""
    FEATURES[function.__name__] = function
    return function


@ranking_feature
def dual(pairs: Pairs) -> NDArray[np.float32]:
    """The score of the dual encoder."""
    return pairs.head_scores["dual"]


@ranking_feature
def classifier(pairs: Pairs) -> NDArray[np.float32]:
    """The score of the classifier."""
    return pairs.head_scores["classifier"]


@ranking_feature
def label_tree(pairs: Pairs) -> NDArray[np.float32]:
    """The probability of the label by a label tree: that of its cluster times its own."""
    # An index of another kind has no such scores. The kind itself is not imported: it loads torch.
    found: NDArray[np.float32] = pairs.index.scores(pairs.queries.vectors, pairs.ids_NK)  # type: ignore[attr-defined]
    return found


@ranking_feature
def knn(pairs: Pairs) -> NDArray[np.float32]:
    """The kNN score; 0 for a label that none of the nearest training texts has."""
    if pairs.knn is None:
        return np.zeros(pairs.ids_NK.shape, dtype=np.float32)
    return values_at(pairs.knn.scores_NL, pairs.ids_NK)


@ranking_feature
def nearest_text(pairs: Pairs) -> NDArray[np.float32]:
    """The similarity of the nearest training text: whether the text is like one that is known."""
    if pairs.knn is None:
        return np.zeros(pairs.ids_NK.shape, dtype=np.float32)
    return np.broadcast_to(pairs.knn.nearest_N[:, None], pairs.ids_NK.shape)


@ranking_feature
def label_prior(pairs: Pairs) -> NDArray[np.float32]:
    """The logarithm of the label's frequency, ln(1 + n)."""
    return np.log1p(pairs.frequencies_L[pairs.ids_NK]).astype(np.float32)


@ranking_feature
def frequency(pairs: Pairs) -> NDArray[np.int64]:
    """The number of training texts of the label."""
    return pairs.frequencies_L[pairs.ids_NK]


@ranking_feature
def weighted_sum(pairs: Pairs) -> NDArray[np.float32]:
    """The weighted sum of the parts, with the weights of the layout."""
    weights = WeightedSum.of(pairs.layout, pairs.layout.weights).weights
    return sum_parts({name: np.float32(weight) * pairs.feature(name) for name, weight in weights.items()})


@ranking_feature
def best_sum(pairs: Pairs) -> NDArray[np.float32]:
    """The highest weighted sum of the text: how sure the heads are of any label."""
    found: NDArray[np.float32] = pairs.feature("weighted_sum") + pairs.feature("weighted_sum_gap")
    return found


@ranking_feature
def word_overlap(pairs: Pairs) -> NDArray[np.float32]:
    """The cosine of the words of text and label."""
    return pairs.overlaps["word_overlap"]


@ranking_feature
def char_overlap(pairs: Pairs) -> NDArray[np.float32]:
    """The cosine of the character n-grams of text and label."""
    return pairs.overlaps["char_overlap"]


@ranking_feature
def word_coverage(pairs: Pairs) -> NDArray[np.float32]:
    """The share of the label's words that the text has."""
    return pairs.overlaps["word_coverage"]


@ranking_feature
def match_count(pairs: Pairs) -> NDArray[np.float32]:
    """How often the text has all words of the label; 0 where it does not."""
    return pairs.matches["match_count"]


@ranking_feature
def match_first(pairs: Pairs) -> NDArray[np.float32]:
    """The share of the text before the first occurrences of all words of the label; 1 where one does not occur."""
    return pairs.matches["match_first"]


@ranking_feature
def match_rate(pairs: Pairs) -> NDArray[np.float32]:
    """The share of the training texts with all words of the label that have the label; 0 for a text without them."""
    return pairs.matches["match_rate"]


@ranking_feature
def match_texts(pairs: Pairs) -> NDArray[np.float32]:
    """The number of training texts with all words of the label; -1 for a text without them."""
    return pairs.matches["match_texts"]


@ranking_feature
def match_words(pairs: Pairs) -> NDArray[np.float32]:
    """The number of words of the label text that the text has whole; 0 where it has none."""
    return pairs.matches["match_words"]


@ranking_feature
def match_ambiguity(pairs: Pairs) -> NDArray[np.float32]:
    """The number of labels that have a text of these words; 0 where the text does not have them."""
    return pairs.matches["match_ambiguity"]


@ranking_feature
def num_matches(pairs: Pairs) -> NDArray[np.float32]:
    """The number of labels of which the text has all words."""
    return pairs.matches["num_matches"]


@ranking_feature
def pretrained(pairs: Pairs) -> NDArray[np.float32]:
    """The cosine of text and label by a frozen encoder."""
    assert pairs.pretrained is not None
    assert pairs.queries.pretrained is not None
    return pairs.pretrained.cosines(pairs.queries.pretrained, pairs.ids_NK)


@ranking_feature
def pretrained_knn(pairs: Pairs) -> NDArray[np.float32]:
    """The kNN score by the vectors of a frozen encoder."""
    assert pairs.pretrained_knn is not None
    return values_at(pairs.pretrained_knn, pairs.ids_NK)


@ranking_feature
def linear(pairs: Pairs) -> NDArray[np.float32]:
    """The score of the label's linear classifier."""
    assert pairs.linear is not None
    assert pairs.queries.rows is not None
    return pairs.linear.scores(pairs.queries.rows, pairs.ids_NK)


@ranking_feature
def links(pairs: Pairs) -> NDArray[np.float32]:
    """The number of train texts of the label that have a label which the text is named like."""
    assert pairs.queries.links is not None
    return values_at(pairs.queries.links, pairs.ids_NK)


@ranking_feature
def label_length(pairs: Pairs) -> NDArray[np.float32]:
    """The number of words and n-grams of the label."""
    assert pairs.lexical is not None
    return pairs.lexical.sizes(pairs.ids_NK)


@ranking_feature
def text_length(pairs: Pairs) -> NDArray[np.float32]:
    """The number of words and n-grams of the text that any label has."""
    assert pairs.queries.words is not None
    lengths = np.diff(pairs.queries.words.indptr).astype(np.float32)
    return np.broadcast_to(lengths[:, None], pairs.ids_NK.shape)


def compute_features(pairs: Pairs, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Features by name, N x K each, in blocks of texts; an id below 0 is no candidate."""
    blocks = []
    num_texts = len(pairs.ids_NK)
    for start in range(0, max(1, num_texts), _TEXTS_AT_ONCE):
        texts = slice(start, start + _TEXTS_AT_ONCE)
        is_all = num_texts <= _TEXTS_AT_ONCE
        block = Pairs(
            pairs.layout,
            pairs.index,
            pairs.queries if is_all else pairs.queries[texts],
            np.maximum(pairs.ids_NK[texts], 0),
            pairs.ids_NK[texts] >= 0,
            pairs.frequencies_L,
            pairs.knn if is_all or pairs.knn is None else pairs.knn[texts],
            pairs.lexical,
            pairs.pretrained,
            pairs.pretrained_knn if is_all or pairs.pretrained_knn is None else pairs.pretrained_knn[texts],
            pairs.linear,
        )
        block.compare(names)
        blocks.append({name: block.feature(name) for name in names})
    if len(blocks) == 1:
        return blocks[0]
    return {name: np.concatenate([block[name] for block in blocks]) for name in names}

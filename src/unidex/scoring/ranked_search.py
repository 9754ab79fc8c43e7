"""Candidates and their ranking by the learned ranker in one call of compiled code.

It computes what `Scorer.candidates` and the ranker compute step by step, bit for bit. For a few texts, what is between
the kernels of these steps costs more than the kernels. Models that it does not know take the other way.

Shapes: N texts, K candidates.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex import native
from unidex.scoring.boosted_trees import BoostedTreesRanker
from unidex.scoring.feature_columns import known_features
from unidex.scoring.layout import Layout
from unidex.scoring.linear_part import LINEAR, LinearPart, unit_length
from unidex.scoring.links import LINKS
from unidex.scoring.matches import MATCHES
from unidex.scoring.queries import Queries
from unidex.scoring.rankers import Ranker
from unidex.topk import TopK

if TYPE_CHECKING:
    from unidex.scoring.scorer import Scorer


_EMPTY = sparse.csr_array((0, 0), dtype=np.float32)
# What the kernel reads where there is no linear part: no rows of texts.
_NO_LINEAR = LinearPart(_EMPTY, np.empty(0, dtype=np.float32)).kernel_arrays(unit_length(_EMPTY))


def rank_at_once(scorer: Scorer, ranker: Ranker, queries: Queries, k: int) -> TopK | None:
    """The best k candidates of each text where no label is hidden; None where they must be found step by step."""
    if native.kernels is None or not isinstance(ranker, BoostedTreesRanker) or scorer.pretrained is not None:
        return None
    layout, knn, lexical, matched = scorer.layout, scorer.knn, scorer.lexical, queries.matches
    if knn is None or lexical is None or lexical.matches is None or queries.words is None or matched is None:
        return None
    by_word, of_matches = lexical.labels_by_word, lexical.matches.of_labels
    if by_word is None or of_matches is None:
        return None
    names, weights = known_features(layout)
    names, links, linear, num_links = (*names, *MATCHES), _EMPTY, _NO_LINEAR, 0
    if queries.links is not None:
        names, links, num_links = (*names, *LINKS), queries.links, ranker.counts.links
    if scorer.linear is not None and queries.rows is not None:
        names = (*names, *LINEAR)
        linear = scorer.linear.kernel_arrays(unit_length(queries.rows))
    table, label_rows, trees = scorer.index.all_vectors(), lexical.only_texts, ranker.fitted.tree_scores.arrays
    frequencies_L, (priors_L, highest) = scorer.labels.frequencies, scorer.log_frequencies()
    if table is None or label_rows is None or trees is None or frequencies_L.dtype != np.int64 or layout.has_tree:
        return None
    matrices = queries.words, knn.positives, by_word, label_rows.rows_RF, links
    places_NL = matched.places_NL
    if ranker.features != names or not native.is_plain(*matrices) or places_NL.indices.dtype != np.int32:
        return None
    if not len(queries) or len(table) != len(frequencies_L):
        return None
    rarities = ranker.fitted.rarity.table(highest)
    if rarities is None:
        return None
    counts = ranker.counts
    near = knn.nearest(layout.knn_queries(queries.vectors))
    found = scorer.index.shortlist(queries.vectors, counts.index)
    if found is None:
        found = scorer.index.search(queries.vectors, counts.index).ids
    width = counts.index + counts.knn + counts.lexical + counts.matches + num_links
    best = TopK.room(len(queries), min(k, width))
    is_done = native.kernels.search_labels(
        *(found, queries.vectors, table, *_head_columns(layout), *native.arrays_of(knn.shares_of(near))),
        *(near.scores.max(axis=1, initial=0), *native.arrays_of(queries.words)),
        *(*native.arrays_of(lexical.searched_words(queries.words)), lexical.matches.scores(matched).data),
        *(places_NL.indptr, places_NL.indices, places_NL.data, matched.counts_M, matched.firsts_M, matched.rows_M),
        *(*of_matches, *native.arrays_of(knn.positives), *native.arrays_of(by_word)),
        *(weights, priors_L, frequencies_L, lexical.idf_of_columns, *native.arrays_of(label_rows.rows_RF)),
        *(label_rows.num_words_R, label_rows.word_norms_R, *trees, rarities, *linear, *native.arrays_of(links)),
        *(best.ids, best.scores, counts.index, counts.knn, counts.lexical, counts.matches, num_links),
        len(ranker.features),
    )
    return best if is_done else None


@lru_cache(maxsize=16)
def _head_columns(layout: Layout) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The first column and the number of columns of each head, and its weight in the rows of labels."""
    columns = [(layout.first_column(head), getattr(layout, head)) for head in layout.heads]
    weights = [layout.weight(head) or 1.0 for head in layout.heads]
    return np.array(columns, dtype=np.int64), np.array(weights, dtype=np.float32)

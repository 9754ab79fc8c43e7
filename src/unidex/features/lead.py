"""The lead of a text: its first words, which count again.

A title precedes its content, and the first sentence of a description summarises the rest. With x the row
of a whole text and y the row of its lead, both of length 1, the row of a text at least twice as long as its lead is

    (x + weight * y) / |x + weight * y|

A shorter text keeps its row: its first words are no title before a content, and titles alone are what they were.
"""

from __future__ import annotations

import numpy as np

from unidex.features.feature_weights import Rows
from unidex.sparse_rows import find_sorted


def lead_of(text: str, num_words: int) -> str | None:
    """The first words of a text, as blanks divide it; None for a text of less than twice as many words.

    >>> lead_of("Golden ratio: a number painters love", 3), lead_of("Golden ratio: a number", 3)
    ('Golden ratio: a', None)
    """
    words = text.split(maxsplit=2 * num_words - 1)
    return " ".join(words[:num_words]) if len(words) == 2 * num_words else None


def with_leads(rows: Rows, leads: Rows, weight: float) -> Rows:
    """Rows in which the features of leads count again; a lead without features leaves its row as it is.

    >>> whole = Rows(np.array([2, 1]), np.array([3, 7, 4], dtype=np.int32), np.array([0.6, 0.8, 1.0], dtype=np.float32))
    >>> leads = Rows(np.array([1, 0]), np.array([3], dtype=np.int32), np.array([1.0], dtype=np.float32))
    >>> with_leads(whole, leads, 1.0).weights.astype(float).round(3).tolist()
    [0.894, 0.447, 1.0]
    """
    num_rows = len(rows.counts)
    row_of = np.repeat(np.arange(num_rows), rows.counts)
    width = int(max(rows.ids.max(initial=0), leads.ids.max(initial=0))) + 1
    # Every feature of a lead is one of its text, so it is found among them; ids ascend in each row.
    keys = row_of * width + rows.ids
    wanted = np.repeat(np.arange(num_rows), leads.counts) * width + leads.ids
    # A bigram or a token at the cut may be of the lead alone.
    places, found = find_sorted(keys, wanted)
    weights = rows.weights.astype(np.float64)
    weights[places[found]] += weight * leads.weights[found]
    has_lead = (leads.counts > 0)[row_of]
    lengths = np.sqrt(np.bincount(row_of, weights=weights * weights, minlength=num_rows))[row_of]
    weights = np.where(has_lead, weights / np.where(lengths > 0, lengths, 1.0), weights)
    return Rows(rows.counts, rows.ids, weights.astype(np.float32))

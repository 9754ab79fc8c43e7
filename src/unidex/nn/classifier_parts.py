"""Classifiers made of parts: a label's free vector, the words of its text, the words of similar labels in a graph.

A label of few texts cannot learn a good vector of its own; words and similar labels give it one.

Shapes: L labels, U labels of a step, K parts, W words with a vector, V numbers of a word's vector, D of a classifier.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from unidex.features.tokens import TokenRows, token_counts
from unidex.nn.initialisation import orthogonal_linear, xavier_matrix
from unidex.nn.row_table import RowTable, Touched
from unidex.nn.sparse_product import weighted_sum
from unidex.nn.spectral import SpectralLinear

FREE, TEXT, GRAPH = "free", "text", "graph"
_ATTENTION_DROPOUT = 0.2
_PROJECTION_GAIN = 0.02


def join_by_gates(parts_KUD: Tensor, gates_KD: Tensor) -> Tensor:
    """Parts of classifiers as one vector per label, each number of each part behind a gate of its own.

    Formula: w_l = sum over k of sigmoid(a_k) * c_kl, number by number

    References: DECAF (Mittal et al., WSDM 2021, arXiv 2108.00368), with the free vector and the text as parts.

    >>> join_by_gates(torch.tensor([[[4.0, 4.0]], [[0.0, 2.0]]]), torch.zeros(2, 2)).tolist()
    [[2.0, 3.0]]
    """
    return (torch.sigmoid(gates_KD)[:, None] * parts_KUD).sum(dim=0)


def join_by_attention(parts_KUD: Tensor, logits_UK: Tensor) -> Tensor:
    """Parts of classifiers as one vector per label, their mean weighted by a softmax of the label's own.

    Formula: w_l = sum over k of softmax(logits_l)_k c_kl

    References: ECLARE (Mittal et al., WWW 2021, arXiv 2108.00261).

    >>> join_by_attention(torch.tensor([[[4.0, 4.0]], [[0.0, 2.0]]]), torch.zeros(1, 2)).tolist()
    [[2.0, 3.0]]
    """
    return torch.einsum("uk,kud->ud", torch.softmax(logits_UK, dim=1), parts_KUD)


def normalised_graph(graph_LL: sparse.csr_array) -> sparse.csr_array:
    """A label graph whose rows and columns are divided by the roots of their sums, so that no label dominates.

    Formula: D_r^-1/2 G D_c^-1/2, with D_r and D_c the sums of rows and columns.

    References: ECLARE (WWW 2021); graph convolutions (Kipf and Welling, arXiv 1609.02907).

    >>> normalised_graph(sparse.csr_array(np.array([[4.0, 0.0], [0.0, 16.0]]))).toarray().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    rows_L, columns_L = (_inverse(np.sqrt(graph_LL.sum(axis=axis))) for axis in (1, 0))
    return sparse.csr_array(sparse.diags_array(rows_L) @ graph_LL @ sparse.diags_array(columns_L), dtype=np.float32)


def text_rows(prepared: Any, num_words: int) -> sparse.csr_array:
    """Prepared texts as how much each word counts in them, L x W: of features as they are, of words in order 1 each.

    >>> text_rows(TokenRows.of([[2, 0, 2], []], max_length=4), 3).toarray().tolist()
    [[1.0, 0.0, 2.0], [0.0, 0.0, 0.0]]
    """
    if not isinstance(prepared, TokenRows):
        return sparse.csr_array(prepared, dtype=np.float32)
    return token_counts(prepared, num_words)


def scaled_rows(rows_LW: sparse.csr_array, order: int) -> sparse.csr_array:
    """Rows divided by their lengths (``order`` 2), or by their sums (1), which makes them means; rows of 0 stay.

    >>> scaled_rows(sparse.csr_array(np.array([[1.0, 3.0], [0.0, 0.0]])), 1).toarray().tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    sizes_L = np.asarray((abs(rows_LW) ** order).sum(axis=1)) ** (1 / order)
    return sparse.csr_array(sparse.diags_array(_inverse(sizes_L)) @ rows_LW)


class WordPart(nn.Module):
    """The vector of a label by its words: with s the sum of their vectors, x = s or P s, and R(x) = x + W relu(x) + b.

    W is held to spectral norm 1 and is initially the identity; b is initially 0. Dropout precedes W.
    The projection P is for classifiers of another space than the vectors of words.

    References: DECAF (arXiv 2108.00368), its residual block.
    """

    def __init__(self, num_in: int, dim: int, *, dropout: float, projection: bool) -> None:
        super().__init__()
        self.projection: nn.Linear | None = None
        if projection or num_in != dim:
            # Small, as random classifiers are: words of any length would first have to be unlearned.
            self.projection = orthogonal_linear(num_in, dim, gain=_PROJECTION_GAIN, bias=False)
        self.layer = SpectralLinear(torch.eye(dim))
        self.dropout = nn.Dropout(dropout)

    def forward(self, summed_UV: Tensor) -> Tensor:
        """U x D."""
        x_UD: Tensor = summed_UV if self.projection is None else self.projection(summed_UV)
        beside_UD: Tensor = self.layer(self.dropout(torch.relu(x_UD)))
        return x_UD + beside_UD


class PartAttention(nn.Module):
    """How much each part of a label counts, by the parts themselves: B flatten(A relu(dropout(c_kl)) + a), all k.

    A, D x D, and B, K x KD, are held to spectral norm 1; the share of the dropout is 0.2.

    References: ECLARE (WWW 2021, arXiv 2108.00261).
    """

    def __init__(self, num_parts: int, dim: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(_ATTENTION_DROPOUT)
        self.inner = SpectralLinear(xavier_matrix(dim, dim))
        self.outer = SpectralLinear(xavier_matrix(num_parts, num_parts * dim), bias=False)

    def forward(self, parts_KUD: Tensor) -> Tensor:
        """Logits, U x K."""
        inner_UKD: Tensor = self.inner(torch.relu(self.dropout(parts_KUD))).transpose(0, 1)
        logits_UK: Tensor = self.outer(inner_UKD.flatten(start_dim=1))
        return logits_UK


class ClassifierParts(nn.Module):
    """What makes classifiers of the vectors of words and the free vectors that a network has.

    A part alone is taken as it is. Rows of words are no state: they are made anew from the data.

    ``rows`` has, for the parts "text" and "graph" that there are, how much each word counts for each label, L x W;
    ``free`` makes the free vector a part. V is ``dim_words``; D is ``dim``, without the bias. With ``projection`` words
    pass a linear layer even where V = D, since texts pass one too.
    """

    def __init__(
        self,
        rows: Mapping[str, sparse.csr_array],
        *,
        free: bool,
        dim_words: int,
        dim: int,
        joined: Literal["gates", "attention"],
        dropout: float = 0.0,
        projection: bool = False,
    ) -> None:
        super().__init__()
        self.rows, self.free, self.dim = dict(rows), free, dim
        self.kinds = [FREE] * free + list(rows)
        self.words = nn.ModuleDict(
            {kind: WordPart(dim_words, dim, dropout=dropout, projection=projection) for kind in rows}
        )
        several = len(self.kinds) > 1
        # A module's own names of parts, so that a stage takes over the gates of parts that it shares with another.
        self.gates = nn.ParameterDict(
            {kind: nn.Parameter(torch.zeros(dim)) for kind in self.kinds if several and joined == "gates"}
        )
        self.attention = PartAttention(len(self.kinds), dim) if several and joined == "attention" else None

    def needs(self, classifiers: RowTable) -> bool:
        """Whether rows of the classifiers' own are used: free vectors or, behind them, biases."""
        return self.free or classifiers.dim > self.dim

    def forward(
        self, ids_U: Tensor, own_UD: Tensor | None, vectors: RowTable, touched: list[Touched] | None = None
    ) -> Tensor:
        """Classifiers of labels, U x D, or one number more with a bias, which is that of ``own_UD``.

        ``own_UD`` are their rows of the classifiers' own, None where those are not used; ``vectors`` are those of
        words.
        """
        parts = [] if own_UD is None or not self.free else [own_UD[:, : self.dim]]
        if self.rows:
            ids = ids_U.cpu().numpy()
            stacked = sparse.vstack([rows[ids] for rows in self.rows.values()], format="csr")
            summed = weighted_sum(stacked, vectors, touched)
            for kind, part in zip(self.rows, torch.split(summed, len(ids)), strict=True):
                parts.append(self.words[kind](part))
        joined_UD = self._joined(torch.stack(parts)) if len(parts) > 1 else parts[0]
        if own_UD is None or own_UD.shape[1] == self.dim:
            return joined_UD
        return torch.cat([joined_UD, own_UD[:, self.dim :]], dim=1)

    def _joined(self, parts_KUD: Tensor) -> Tensor:
        if self.attention is not None:
            return join_by_attention(parts_KUD, self.attention(parts_KUD))
        return join_by_gates(parts_KUD, torch.stack([self.gates[kind] for kind in self.kinds]))

    def inherit(self, before: ClassifierParts) -> None:
        """Take what both have: the layers and gates of a part, and attention between the same parts."""
        for kind in self.words.keys() & before.words.keys():
            self.words[kind].load_state_dict(before.words[kind].state_dict())
        with torch.no_grad():
            for kind in self.gates.keys() & before.gates.keys():
                self.gates[kind].copy_(before.gates[kind])
        if self.attention is not None and before.attention is not None and self.kinds == before.kinds:
            self.attention.load_state_dict(before.attention.state_dict())


def _inverse(sizes: Any) -> Any:
    """1 / x, and 0 for 0."""
    sizes = np.asarray(sizes, dtype=np.float64)
    return np.divide(1, sizes, out=np.zeros_like(sizes), where=sizes > 0).astype(np.float32)

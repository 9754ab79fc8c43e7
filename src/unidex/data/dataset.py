"""Dataset: texts, labels and which belong together. Checked once, then immutable."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.data.arrays import row_numbers
from unidex.data.concepts import Concepts, joined_texts
from unidex.data.read_options import TableForm
from unidex.data.texts import Texts
from unidex.errors import DataError, quoted


@dataclass(frozen=True)
class Propensity:
    """The constants A and B of the inverse propensity 1 + C (n + B)^-A, with C = (ln N - 1)(B + 1)^A."""

    a: float = 0.55
    b: float = 1.5

    def __post_init__(self) -> None:
        if not (np.isfinite(self.a) and np.isfinite(self.b) and self.a >= 0 and self.b >= 0):
            raise DataError(f"propensity constants must be numbers >= 0, but are A={self.a}, B={self.b}")

    @classmethod
    def of_name(cls, name: str) -> Propensity:
        """The constants that results on a public data set are reported with; 0.55 and 1.5 for all other names.

        Amazon's sets have 0.6 and 2.6, except AmazonCat; sets of Wikipedia's categories have 0.5 and 0.4. WikiSeeAlso
        and Wiki10 have the default constants. Upper and lower case are the same.

        >>> Propensity.of_name("LF-AmazonTitles-1.3M"), Propensity.of_name("LF-WikiSeeAlso-320K")
        (Propensity(a=0.6, b=2.6), Propensity(a=0.55, b=1.5))
        """
        return next((constants for public, constants in _PUBLIC if public.match(name)), cls())


# Names of public data sets, with or without more after the size: LF-AmazonTitles-131K, WikiLSHTC-325K, Wiki-500K.
_PUBLIC = (
    (re.compile(r"(LF-|MM-)?Amazon(Titles)?-[\d.]+[KM]\b", re.IGNORECASE), Propensity(0.6, 2.6)),
    (re.compile(r"(LF-)?Wiki(pedia|Titles|LSHTC)?-[\d.]+[KM]\b", re.IGNORECASE), Propensity(0.5, 0.4)),
)


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels: line number is the label id. Texts may repeat, uids may not.

    Attributes:
        texts: the text of each label.
        uids: the user's own names, or None.
        concepts: what is known beyond that, for those labels of which something is.
    """

    texts: Texts
    uids: Texts | None = None
    concepts: Concepts = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_uids(self.uids, len(self.texts), "labels")
        if self.concepts and not 0 <= min(self.concepts) <= max(self.concepts) < len(self.texts):
            raise DataError(f"concepts must be of labels from 0 to {len(self.texts) - 1}, but one is of another")

    @cached_property
    def encoder_texts(self) -> Texts:
        """All texts of each label as one, as encoders read them; ``texts`` where no label has further ones."""
        found = joined_texts(self.texts, self.concepts)
        return found if isinstance(found, Texts) else Texts.of(found)

    def __len__(self) -> int:
        return len(self.texts)

    def uid(self, label: int) -> str:
        """The user's own name of a label; its number where the data set has none."""
        return str(label) if self.uids is None else self.uids[label]


@dataclass(frozen=True, eq=False)
class Split:
    """Texts with their positives.

    Attributes:
        texts: N texts.
        positives: N x L, a stored value is the relevance (> 0) of a pair; columns sorted.
        filter_pairs: N x L, pairs that are never predicted and never counted as negatives.
        uids: the user's own names of the texts, or None.
        features: N x V sparse features for data sets that come without texts, or None.
    """

    texts: Texts
    positives: sparse.csr_array
    filter_pairs: sparse.csr_array
    uids: Texts | None = None
    features: sparse.csr_array | None = None

    @classmethod
    def of(
        cls,
        texts: Texts,
        positives: sparse.csr_array,
        filter_pairs: sparse.csr_array | None = None,
        uids: Texts | None = None,
        features: sparse.csr_array | None = None,
    ) -> Split:
        """A split in canonical form: pairs sorted, duplicates merged by the larger value, zeros left out."""
        none = sparse.csr_array(positives.shape, dtype=bool)
        return cls(
            texts,
            canonical(positives, np.float32),
            canonical(none if filter_pairs is None else filter_pairs, np.bool_),
            uids,
            None if features is None else canonical(features, np.float32),
        )

    @classmethod
    def empty(cls, num_labels: int) -> Split:
        """A split without texts."""
        return cls.of(Texts.of([]), sparse.csr_array((0, num_labels), dtype=np.float32))

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int] | NDArray[np.integer[Any]] | slice) -> Split:
        """The split of these rows only, in this order; a slice of neighbouring rows shares the memory."""
        return Split(
            self.texts.take(rows),
            _taken(self.positives, rows),
            _taken(self.filter_pairs, rows),
            None if self.uids is None else self.uids.take(rows),
            None if self.features is None else _taken(self.features, rows),
        )


@dataclass(frozen=True, eq=False)
class Dataset:
    """Train and test texts over one set of labels.

    >>> positives = sparse.csr_array(np.array([[1.0, 0.0], [0.0, 0.5]]))
    >>> train = Split.of(Texts.of(["red shoe", "blue hat"]), positives)
    >>> data = Dataset("shop", Labels(Texts.of(["shoes", "hats"])), train)
    >>> data.num_labels, len(data.train), len(data.test)
    (2, 2, 0)
    """

    name: str
    labels: Labels
    train: Split
    test: Split = field(default=None)  # type: ignore[assignment]  # an empty split of the right width
    propensity: Propensity = field(default_factory=Propensity)
    table: TableForm = field(default_factory=TableForm)  # how the texts were read, if from a table
    # Labels of the texts that the labels lack, and how often each was left out, most frequent first.
    unknown_labels: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.test is None:
            object.__setattr__(self, "test", Split.empty(len(self.labels)))
        if len(self.labels) == 0:
            raise DataError(f"data set {quoted(self.name)} must have at least one label, but has none")
        if len(self.train) == 0:
            raise DataError(f"data set {quoted(self.name)} must have at least one train text, but has none")
        _check_split(self.train, "train", len(self.labels))
        _check_split(self.test, "test", len(self.labels))

    @property
    def num_labels(self) -> int:
        """Number of labels."""
        return len(self.labels)

    @property
    def splits(self) -> tuple[Split, Split]:
        """Train and test."""
        return self.train, self.test

    def with_test(self, test: Split) -> Dataset:
        """The same data set with other test texts."""
        return replace(self, test=test)

    def label_frequencies(self) -> NDArray[np.int64]:
        """Number of train texts that have each label, whatever the relevance."""
        return np.bincount(self.train.positives.indices, minlength=self.num_labels).astype(np.int64, copy=False)


def split_rows(num_rows: int, fraction: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows 0..num_rows-1 in two seeded parts, the second with about ``fraction`` of them; each part ascends.

    >>> first, second = split_rows(10, 0.2, seed=0)
    >>> len(first), len(second), sorted([*first, *second]) == list(range(10))
    (8, 2, True)
    """
    if not 0 <= fraction <= 1:
        raise DataError(f"a split fraction must be between 0 and 1, but is {fraction}")
    order = np.random.default_rng(seed).permutation(num_rows)
    size = round(num_rows * fraction)
    return np.sort(order[size:]), np.sort(order[:size])


def positives_of(rows: Sequence[Sequence[int]], num_labels: int) -> sparse.csr_array:
    """The positives of texts, given as the labels of each.

    >>> positives_of([[1], [], [0, 1]], 2).toarray().tolist()
    [[0.0, 1.0], [0.0, 0.0], [1.0, 1.0]]
    """
    labels = np.array([label for row in rows for label in row], dtype=np.int64)
    ends = np.cumsum([0, *map(len, rows)])
    return sparse.csr_array((np.ones(len(labels), dtype=np.float32), labels, ends), shape=(len(rows), num_labels))


def canonical(pairs: sparse.csr_array, dtype: type[np.generic]) -> sparse.csr_array:
    """Sorted columns, duplicates merged by the maximum, zeros dropped, read-only."""
    ascending = np.diff(pairs.indices, prepend=-1) > 0
    starts = pairs.indptr[:-1]
    ascending[starts[starts < pairs.nnz]] = True
    if ascending.all() and pairs.data.all():
        arrays = (_own(pairs.data, dtype), _own(pairs.indices), _own(pairs.indptr))
        return _frozen(sparse.csr_array(arrays, shape=pairs.shape))
    coo = pairs.tocoo()
    kept = coo.data != 0
    rows, columns, values = coo.row[kept], coo.col[kept], coo.data[kept].astype(dtype)
    # The largest value of a duplicate comes first, and the first is the one that stays.
    order = np.lexsort((np.negative(values.astype(np.float32)), columns, rows))
    rows, columns, values = rows[order], columns[order], values[order]
    if len(rows):
        first = np.concatenate([[True], (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])])
        rows, columns, values = rows[first], columns[first], values[first]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=pairs.shape[0]))])
    return _frozen(sparse.csr_array((values, columns, indptr), shape=pairs.shape))


def _own(array: NDArray[Any], dtype: type[np.generic] | None = None) -> NDArray[Any]:
    """A copy that no other code can write into; a read-only array, such as a mapped file, is not copied."""
    return array.astype(dtype or array.dtype, copy=array.flags.writeable)


def _taken(matrix: sparse.csr_array, rows: Any) -> sparse.csr_array:
    """These rows; adjacent rows are views of the same pairs."""
    if not isinstance(rows, slice) or rows.step not in (None, 1):
        return _frozen(matrix[np.arange(matrix.shape[0])[rows] if isinstance(rows, slice) else row_numbers(rows)])
    start, stop, _ = rows.indices(matrix.shape[0])
    ends = matrix.indptr[start : max(start, stop) + 1]
    pairs = slice(ends[0], ends[-1])
    arrays = (matrix.data[pairs], matrix.indices[pairs], ends - ends[0])
    return _frozen(sparse.csr_array(arrays, shape=(len(ends) - 1, matrix.shape[1])))


def _frozen(matrix: sparse.csr_array) -> sparse.csr_array:
    matrix.has_sorted_indices = True
    matrix.has_canonical_format = True
    for array in (matrix.data, matrix.indices, matrix.indptr):
        array.flags.writeable = False
    return matrix


def _check_uids(uids: Texts | None, expected: int, what: str) -> None:
    if uids is None:
        return
    if len(uids) != expected:
        raise DataError(f"{what} must have one uid each, but there are {expected} rows and {len(uids)} uids")
    row = uids.first_repeat()
    if row is not None:
        raise DataError(
            f"uids of {what} must differ, but {quoted(uids[row])} comes again in row {row + 1}; "
            "rename one, or leave the uids out"
        )


def _check_split(split: Split, what: str, num_labels: int) -> None:
    rows = len(split.texts)
    for name, matrix in (("positives", split.positives), ("filter pairs", split.filter_pairs)):
        if matrix.shape != (rows, num_labels):
            raise DataError(
                f"{name} of {what} must have {rows} rows (texts) and {num_labels} columns (labels), "
                f"but have {matrix.shape[0]} and {matrix.shape[1]}"
            )
        if matrix.nnz and not 0 <= int(matrix.indices.min()) <= int(matrix.indices.max()) < num_labels:
            raise DataError(f"label ids in {name} of {what} must be from 0 to {num_labels - 1}")
        if not matrix.has_canonical_format or matrix.data.flags.writeable:
            raise DataError(f"{name} of {what} must be sorted, without repeats and read-only; make them with Split.of")
    values = split.positives.data
    if len(values) and not bool(np.all((values > 0) & np.isfinite(values))):
        worst = values[~((values > 0) & np.isfinite(values))][0]
        raise DataError(f"relevance in {what} must be a number > 0, but one is {worst}")
    if split.features is not None and split.features.shape[0] != rows:
        raise DataError(f"features of {what} must have {rows} rows (texts), but have {split.features.shape[0]}")
    _check_uids(split.uids, rows, what)

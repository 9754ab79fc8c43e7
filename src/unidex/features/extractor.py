"""Features: texts become sparse rows of weighted feature ids.

Shapes: N texts, F features (those with an id of their own, then buckets).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex import native, progress
from unidex.config import Features as Settings
from unidex.data.compressed_texts import CompressedTexts
from unidex.data.text_packer import Packer
from unidex.data.texts import Texts
from unidex.errors import DataError, ModelError
from unidex.features import long_rows
from unidex.features.analyser import PLAIN, Analyser
from unidex.features.codepoints import read_texts
from unidex.features.feature_counts import CHUNK_TEXTS, count_features, text_chunks
from unidex.features.feature_weights import Rows, Weights
from unidex.features.groups import groups_of
from unidex.features.lead import lead_of, with_leads
from unidex.features.pretrained_columns import PretrainedColumns
from unidex.features.saved_settings import FORMAT, UNSPLIT_FORMAT, read_about, read_settings
from unidex.features.single_text import TextByText
from unidex.features.subwords import load_tokenizer, train_tokenizer
from unidex.features.vocabulary import Vocabulary
from unidex.features.word_places import Placed
from unidex.features.words import UNSPACED, normal_form
from unidex.sparse_rows import unchecked_csr
from unidex.storage.mapped import load_array

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_logger = logging.getLogger(__name__)
MAX_COUNTED = 1 << 22  # texts, and as many label texts, whose features are counted


@dataclass(frozen=True, eq=False)
class FeatureExtractor:
    """What turns texts into sparse rows.

    >>> features = FeatureExtractor.fit(["red shoe", "blue shoe", "red hat"], ["shoes", "hat"], Settings(num_buckets=0))
    >>> sorted(features.name(feature) for feature in range(features.num_features))
    ['hat', 'red', 'shoe']
    >>> matrix = features.transform(["a red hat", ""])
    >>> matrix.shape, sorted(features.name(feature) for feature in matrix.indices)
    ((2, 3), ['hat', 'red'])
    """

    settings: Settings
    vocabulary: Vocabulary
    idf: NDArray[np.float32]
    names: Sequence[str]
    tokenizer: Tokenizer | None = None
    analyser: Analyser = PLAIN
    columns: PretrainedColumns | None = None

    @classmethod
    def fit(
        cls,
        texts: Sequence[str],
        label_texts: Sequence[str],
        settings: Settings,
        *,
        columns: PretrainedColumns | None = None,
        chunk_texts: int = CHUNK_TEXTS,
    ) -> FeatureExtractor:
        """Choose the vocabulary and its weights; columns of a frozen encoder, if there are some, follow it.

        A feature counts once for every text and every label text it occurs in: what one text and one label share is
        the very thing that can match them, so it must not be lost as too rare. Of very many texts, evenly spread ones
        are counted, so that memory and time stay bounded.
        """
        texts, label_texts = spread(texts), spread(label_texts)
        num_texts = len(texts) + len(label_texts)
        tokenizer = _tokenizer_for(settings, texts, label_texts)
        analyser = Analyser.fit(texts, label_texts, settings)
        counters = count_features(texts, label_texts, settings, tokenizer, chunk_texts, analyser)
        vocabulary = Vocabulary.choose(
            counters,
            num_texts=num_texts,
            min_df=settings.min_df,
            max_features=settings.max_features,
            num_buckets=settings.num_buckets,
        )
        chunks = text_chunks(texts, label_texts, size=chunk_texts)
        names = _find_names(vocabulary, settings, tokenizer, map(analyser.texts, chunks), num_texts)
        return cls(settings, vocabulary, vocabulary.idf(), names, tokenizer, analyser, columns)

    @property
    def num_features(self) -> int:
        """Number of feature ids, buckets and columns of a frozen encoder included."""
        return self.vocabulary.num_features + (0 if self.columns is None else self.columns.dim)

    def transform(self, texts: Sequence[str], *, chunk_texts: int = CHUNK_TEXTS) -> sparse.csr_array:
        """The N x F float32 matrix of texts; columns ascend in each row, and a text without features is empty."""
        pieces = list(self.rows(texts, chunk_texts=chunk_texts))
        counts = np.concatenate([np.zeros(1, dtype=np.int64), *(piece.counts for piece in pieces)])
        ids = np.concatenate([np.empty(0, dtype=np.int32), *(piece.ids for piece in pieces)])
        weights = np.concatenate([np.empty(0, dtype=np.float32), *(piece.weights for piece in pieces)])
        return as_csr(weights, ids, np.cumsum(counts), self.num_features)

    def rows(self, texts: Sequence[str], *, chunk_texts: int = CHUNK_TEXTS) -> Iterator[Rows]:
        """The rows of texts, chunk by chunk."""
        with progress.task("making features", len(texts), unit="texts") as advance:
            for chunk in text_chunks(texts, size=chunk_texts):
                yield self._rows(chunk, self._plain_rows)
                advance(len(chunk))

    def transform_one(self, text: str) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Feature ids and weights of one text: its row of ``transform`` to the last bit, in a fraction of the time."""
        row = self._rows([text], self._text_by_text.rows)
        return row.ids, row.weights

    def transform_few(self, texts: Sequence[str]) -> sparse.csr_array:
        """As ``transform``, to the last bit, in less time where texts are few, short, and of words seen before."""
        rows = self._rows(texts, self._text_by_text.rows)
        ends = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum(rows.counts, out=ends[1:])
        return as_csr(rows.weights, rows.ids, ends, self.num_features)

    def placed(self, text: str) -> Placed:
        """Where in a text each feature of its row occurs.

        >>> features = FeatureExtractor.fit(["red hat"], [], Settings(min_df=1, bigrams=False, num_buckets=0))
        >>> placed = features.placed("A hat, a red hat!")
        >>> [features.name(feature) for feature in placed.features], placed.starts.tolist(), placed.ends.tolist()
        (['hat', 'red', 'hat'], [2, 9, 13], [5, 12, 16])
        """
        return self._text_by_text.placed(text)

    def _rows(self, texts: Sequence[str], rows_of: Callable[[Sequence[str]], Rows]) -> Rows:
        """The rows of texts, with the columns of a frozen encoder if there is one."""
        rows = self._word_rows(texts, rows_of)
        return rows if self.columns is None else self.columns.append(rows, texts, self.vocabulary.num_features)

    def _word_rows(self, texts: Sequence[str], rows_of: Callable[[Sequence[str]], Rows]) -> Rows:
        """The rows of texts with their leads, by a kernel or by what makes rows of analysed texts."""
        settings, analysed = self.settings, self.analyser.texts
        leads = [lead_of(text, settings.lead) or "" for text in texts] if settings.lead_weight else []
        if not any(leads):
            leads = []
        if native.kernels is not None and self.tokenizer is None and settings.words:
            lists = [[normal_form(text) for text in analysed(some)] for some in (texts, leads)]
            counts, ids, weights = read_texts(native.kernels.text_rows, lists, *self._of_kernel)
            return Rows(
                np.frombuffer(counts, np.int64), np.frombuffer(ids, np.int32), np.frombuffer(weights, np.float32)
            )
        rows = rows_of(analysed(texts))
        return with_leads(rows, rows_of(analysed(leads)), settings.lead_weight) if leads else rows

    @cached_property
    def _of_kernel(self) -> tuple[Any, ...]:
        """What the kernel needs to know of features."""
        settings, vocabulary = self.settings, self.vocabulary
        of_chars = (settings.chars_min, settings.chars_max) if settings.chars else (0, 0)
        arrays = (vocabulary.keys, vocabulary.starts, vocabulary.ids, self.idf, self._weights.tf_table)
        flags = (settings.parts, settings.bigrams, *of_chars, settings.lead_weight)
        return (*arrays, vocabulary.num_buckets, *flags)

    def _plain_rows(self, texts: Sequence[str]) -> Rows:
        found = [np.empty(0, dtype=np.int64)]
        for group in groups_of(texts, self.settings, self.tokenizer):
            found.extend(self._weights.occurrences(group, self.vocabulary))
        return self._weights.rows(np.concatenate(found), len(texts))

    @cached_property
    def _weights(self) -> Weights:
        return Weights(self.idf, self.settings.sublinear_tf)

    @cached_property
    def _text_by_text(self) -> TextByText:
        return TextByText(self.settings, self.vocabulary, self._weights, self.tokenizer, self.analyser)

    def name(self, feature: int) -> str:
        """A readable name: "golden", "golden ratio", "gol*" for an n-gram, "[token]" for a subword.

        A bucket, which rare features share, is "(bucket 0)". The numbers of a frozen encoder are "(frozen encoder)".
        """
        if not 0 <= feature < self.num_features:
            raise DataError(f"a feature id must be from 0 to {self.num_features - 1}, but is {feature}")
        if feature >= self.vocabulary.num_features:
            return "(frozen encoder)"
        if feature >= len(self.vocabulary):
            return f"(bucket {feature - len(self.vocabulary)})"
        return self.names[feature]

    @cached_property
    def fingerprint(self) -> str:
        """Changes with anything that changes a row."""
        digest = blake2b(digest_size=16)
        digest.update(
            json.dumps([FORMAT, self.settings.model_dump(), self.analyser.as_dict()], sort_keys=True).encode()
        )
        for array in (self.vocabulary.keys, self.vocabulary.ids, self.idf):
            digest.update(np.ascontiguousarray(array).data)
        if self.tokenizer is not None:
            digest.update(self.tokenizer.to_str().encode())
        if self.columns is not None:
            digest.update(json.dumps(self.columns.encoder.about() | {"weight": self.columns.weight}).encode())
            digest.update(np.ascontiguousarray(self.columns.encoder.probe).data)
        return digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Write the features to a folder: features.json, arrays, names, and the tokenizer where there is one."""
        folder.mkdir(parents=True, exist_ok=True)
        self.vocabulary.save(folder)
        # Kept, not computed again: the logarithm of another machine may differ in the last bit. Once per frequency.
        frequencies, firsts, places = np.unique(self.vocabulary.frequencies, return_index=True, return_inverse=True)
        by_frequency = self.idf[firsts]
        is_function = len(frequencies) < len(self.idf) and np.array_equal(by_frequency[places], self.idf)
        np.save(folder / "idf.npy", by_frequency if is_function else self.idf)
        names = self.names if isinstance(self.names, CompressedTexts) else CompressedTexts.of(self.names)
        names.save(folder / "names")
        if self.tokenizer is not None:
            self.tokenizer.save(str(folder / "tokenizer.json"))
        if self.columns is not None:
            self.columns.save(folder)
        about: dict[str, Any] = {
            "format": FORMAT,
            "num_texts": self.vocabulary.num_texts,
            "settings": self.settings.model_dump(),
        }
        about["analyser"] = self.analyser.as_dict()
        (folder / "features.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> FeatureExtractor:
        """Read what ``save`` wrote; the rows of a text are the same to the last bit."""
        about = read_about(folder / "features.json")
        try:
            settings, num_texts = read_settings(about["settings"]), int(about["num_texts"])
            analyser = Analyser.read(about.get("analyser"), settings.language)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{folder / 'features.json'}: settings must be whole, but {error}; train anew") from None
        vocabulary = Vocabulary.load(folder, num_texts=num_texts, num_buckets=settings.num_buckets)
        idf = _read_idf(folder / "idf.npy", vocabulary)
        tokenizer = load_tokenizer(folder) if settings.subwords else None
        names: Sequence[str]
        if CompressedTexts.is_at(folder / "names"):
            names = CompressedTexts.load(folder / "names", len(vocabulary))
        else:
            names = Texts.load(folder / "names")
        if len(names) != len(vocabulary):
            raise ModelError(f"{folder}: {len(vocabulary)} feature names must be here, but there are {len(names)}")
        if about["format"] == UNSPLIT_FORMAT and any(map(UNSPACED.search, names)):
            _logger.warning(
                "%s: this model read runs of Chinese and Japanese characters as one word; now each character is one. "
                "Train it again.",
                folder,
            )
        return cls(settings, vocabulary, idf, names, tokenizer, analyser, PretrainedColumns.load(folder))


def as_csr(
    weights: NDArray[np.float32], ids: NDArray[np.int32], ends: NDArray[Any], num_features: int
) -> sparse.csr_array:
    """A matrix over these arrays, without copying ids and weights; ids must ascend in each row."""
    if ends[-1] >= long_rows.LONG_FROM:
        return long_rows.LongRows.of(weights, ids, ends.astype(np.int64, copy=False), num_features)
    return unchecked_csr(weights, ids, ends.astype(np.int32, copy=False), (len(ends) - 1, num_features))


def _read_idf(file: Path, vocabulary: Vocabulary) -> NDArray[np.float32]:
    """The idf of each feature: one number per feature, or per frequency where equal frequencies have equal ones."""
    values = load_array(file, (None,), np.float32)
    if len(values) == vocabulary.num_features:
        return values
    frequencies, places = np.unique(vocabulary.frequencies, return_inverse=True)
    if len(values) != len(frequencies):
        raise ModelError(
            f"{file}: there must be one number per feature ({vocabulary.num_features}) or per frequency "
            f"({len(frequencies)}), but there are {len(values)}; copy the model again"
        )
    idf: NDArray[np.float32] = values[places]
    return idf


def spread(texts: Sequence[str]) -> Sequence[str]:
    """All texts, or every n-th of too many, so that memory and time stay bounded."""
    return texts[:: -(-len(texts) // MAX_COUNTED)] if len(texts) > MAX_COUNTED else texts


def padded_rows(rows_NF: sparse.csr_array) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Sparse rows as feature ids and weights of equal length, padded with id 0 of weight 0: N x U each.

    >>> ids, weights = padded_rows(sparse.csr_array([[0, 0.5, 0.5], [0, 0, 0], [0, 1.0, 0]]))
    >>> ids.tolist(), weights.tolist()
    ([[1, 2], [0, 0], [1, 0]], [[0.5, 0.5], [0.0, 0.0], [1.0, 0.0]])
    """
    counts = np.diff(rows_NF.indptr)
    here_NU = np.arange(counts.max(initial=0)) < counts[:, None]
    ids, weights = np.zeros(here_NU.shape, dtype=np.int64), np.zeros(here_NU.shape, dtype=np.float32)
    ids[here_NU], weights[here_NU] = rows_NF.indices, rows_NF.data
    return ids, weights


def _tokenizer_for(settings: Settings, texts: Sequence[str], label_texts: Sequence[str]) -> Tokenizer | None:
    if not settings.subwords:
        return None
    if settings.tokenizer:
        return load_tokenizer(Path(settings.tokenizer))

    class Both:
        def __iter__(self) -> Iterator[str]:
            return chain(texts, label_texts)

    return train_tokenizer(Both(), num_texts=len(texts) + len(label_texts))


def _find_names(
    vocabulary: Vocabulary,
    settings: Settings,
    tokenizer: Tokenizer | None,
    chunks: Iterable[Sequence[str]],
    num_texts: int,
) -> Texts:
    # A second walk over the texts: the names of all candidates would take far more memory than the names of the chosen.
    names = [""] * len(vocabulary)
    missing = np.ones(vocabulary.num_features, dtype=bool)
    missing[len(names) :] = False
    with progress.task("naming features", num_texts, unit="texts") as advance:
        for chunk in chunks:
            for group in groups_of(chunk, settings, tokenizer):
                ids = vocabulary.lookup(group.keys)
                known = np.flatnonzero(ids >= 0)
                new = known[missing[ids[known]]]
                for feature, name in zip(ids[new].tolist(), group.feature_names(new), strict=True):
                    names[feature] = name
                missing[ids[new]] = False
            advance(len(chunk))
    packer = Packer()
    packer.add(names)
    return Texts.packed(packer)

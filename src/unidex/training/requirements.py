"""Memory and disk of every phase of a run, by formulas over its sizes.

Memory is what the system cannot take back: pages of mapped files are not counted. Each term says which table or matrix
it is; a phase needs the terms that live at the same time. docs/how-to/plan.md compares it with measured runs.

Shapes of the formulas: L labels, N texts, F features, D numbers per head, J numbers of both heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from unidex.config import Config
from unidex.features.feature_counts import MERGE_AT
from unidex.index.disk_lists import LEARNED_PER_LIST, num_lists
from unidex.index.pq import LISTED_FROM
from unidex.scoring.computed_rows import STREAMED_ABOVE
from unidex.scoring.label_index import chosen_kind
from unidex.scoring.mapped_matches import MAPPED_ABOVE
from unidex.scoring.nearest_texts import EXACT_UP_TO
from unidex.training.held_out import wanted_share
from unidex.training.linear_fit import MAX_ENTRIES as MAX_LINEAR
from unidex.training.network_state import MAX_COPY
from unidex.training.run_sizes import Sizes
from unidex.training.sizes import batch_size_for
from unidex.training.timetable import FINISH, FIT, INDEX, PREPARE, TEST, TRAIN, TRIAL
from unidex.training.trials import may_try

NUMBER = 4  # bytes of a float32
ENTRY = 8  # bytes of a stored feature: id and weight
# Scores and places of an exact search, blocks of label rows, and what a step leaves to the allocator.
SEARCH = 110 << 20
# Ranker: features of the candidates of a held-out text, and those of its pairs that trees are fitted to.
RANKER_TEXT, RANKER = 14 << 10, 80 << 20
LABEL_MARKS = 1  # byte of a label: the mark that it was removed
EVALUATED = 20  # bytes of a label's hits at three places, its truth and its weight
LEXICAL_ENTRIES = 1.1  # words and n-grams per byte of a label text
STORED = {"float32": 1, "int8": 1 / 4, "int5": 1 / 7}  # a saved table of features beside that of training
# While words of very many labels are put into files: bytes of a label, and of a block of labels at most.
LEXICAL_FILED, LEXICAL_BLOCK = 165, 700 << 20


@dataclass(frozen=True)
class Requirement:
    """What a phase needs, in bytes, by the name of each term."""

    memory: dict[str, int] = field(default_factory=dict)
    disk: dict[str, int] = field(default_factory=dict)

    @property
    def total_memory(self) -> int:
        """All terms of memory together."""
        return sum(self.memory.values())

    @property
    def total_disk(self) -> int:
        """All terms of disk together."""
        return sum(self.disk.values())


def requirements(config: Config, sizes: Sizes, base: int, processes: int = 1) -> dict[str, Requirement]:
    """Memory and disk of each phase.

    Args:
        config: the recipe of the last stage; earlier stages have the same encoder and fewer labels.
        sizes: of the data set.
        base: bytes of a process with all libraries loaded.
        processes: number of processes that share the labels; the result is that of each one of them.
    """
    terms = _Terms(config, sizes, processes)
    in_file = config.train.table_storage == "file"
    common = {"program": base, "data set": terms.data, "label frequencies": 16 * sizes.num_labels}
    tables = {} if in_file else {"row tables": terms.tables}
    state = {"optimiser state": terms.row_state + (0 if in_file else terms.table_state)}
    copied = {"copy of the best network": terms.tables} if terms.tables <= MAX_COPY and terms.validates else {}
    step = {"training step": terms.step}
    search = {"validation": terms.search} if terms.validates else {}
    training = common | tables | state | step
    lexical = {"words of labels": terms.lexical} if config.predict.rank == "learned" else {}
    knn = {"nearest texts": terms.knn} if terms.has_knn else {}
    words = {"words of labels": terms.lexical_files} if lexical and terms.maps_words else {}
    has_linear = config.predict.linear and config.predict.rank == "learned" and processes == 1 and terms.validates
    linear = {"linear classifiers": terms.linear} if has_linear else {}
    disk = {"prepared texts": terms.prepared}
    files = disk | ({"row tables": terms.tables + terms.table_state} if in_file else {})
    checkpoint = {"checkpoints": terms.checkpoints} if terms.checkpoints else {}
    found = {
        PREPARE: Requirement(common | {"counted features": terms.counted, "row tables": terms.encoder_table}, disk),
        TRAIN: Requirement(training | copied | search, files | checkpoint),
    }
    if may_try(config, sizes.num_texts):
        # From the second trial on, the first one stays in its checkpoint, and so does what both start with.
        files |= {"first trial": terms.finished + terms.encoder_table}
        found[TRIAL] = Requirement(found[TRAIN].memory, files | checkpoint)
    if terms.validates:
        # The ranker is fitted in the memory that a step has left to the allocator.
        fitted = {"training step": max(terms.step, terms.search + terms.ranker)}
        searched, on_disk = terms.held_out_index if processes == 1 else ({}, {})
        fit_files = files | checkpoint | words | on_disk
        found[FIT] = Requirement(training | knn | lexical | fitted | searched | linear, fit_files)
    if terms.maps_words:
        # They are in files from then on.
        lexical = {}
    if config.train.decay_epochs:
        found[FINISH] = Requirement(training | lexical, files | checkpoint | words)
    kind, index_memory, index_disk = terms.index
    model = {"labels": LABEL_MARKS * sizes.num_labels, f"index ({kind})": index_memory}
    built = common | tables | model | knn | lexical
    # An index on disk becomes a part of the model folder without a copy, and so do words.
    index = words | ({"index": index_disk + terms.codes} if kind == "disk" else {})
    folder = {"model folder": terms.model_folder} | ({"index": index_disk} if index_disk else {})
    files |= {"checkpoints": terms.finished} if checkpoint else {}
    found[INDEX] = Requirement(built | {"block of rows": SEARCH // 2} | linear, files | index)
    tested = {"predictions": SEARCH // 2, "evaluation": EVALUATED * sizes.num_labels if sizes.num_test else 0}
    if kind == "disk":
        # Its files are mapped; only the build needs memory.
        tested[f"index ({kind})"] = 0
    found[TEST] = Requirement(built | tested, files | folder)
    return found


@dataclass(frozen=True)
class _Terms:
    """The sizes of tables and matrices in bytes."""

    config: Config
    sizes: Sizes
    processes: int

    @property
    def linear(self) -> int:
        """A copy of the features of texts, and one in rows of length 1, to fit linear classifiers to."""
        num_entries = self.sizes.num_texts * self.sizes.text_entries
        return int(2 * ENTRY * num_entries) if num_entries <= MAX_LINEAR else 0

    @property
    def dim(self) -> int:
        """Numbers per vector of a head."""
        heads = self.config.heads
        return heads.dim if heads.projection else self.config.encoder.dim

    @property
    def joined(self) -> int:
        """Numbers of a row of the index: both heads and the label prior."""
        heads = self.config.heads
        return self.dim * (int(heads.dual) + int(heads.classifier)) + 1

    @property
    def num_features(self) -> int:
        """Rows of the table of features, at most as many as the recipe allows."""
        features = self.config.features
        return min(self.sizes.num_features, features.max_features + features.num_buckets)

    @property
    def own_labels(self) -> int:
        """Labels of one process."""
        return math.ceil(self.sizes.num_labels / self.processes)

    @property
    def validates(self) -> bool:
        return self.config.train.validation > 0

    @property
    def has_knn(self) -> bool:
        predict = self.config.predict
        chooses = predict.choose_knn and self.validates
        return predict.knn > 0 or chooses or predict.rank == "learned" or predict.snippet_length > 0

    @property
    def data(self) -> int:
        """Texts with their places, and pairs; of mapped ones, the pairs that a step reads."""
        sizes = self.sizes
        if sizes.is_mapped:
            return 12 * sizes.num_pairs
        texts = 16 * (sizes.num_texts + sizes.num_labels + sizes.num_test)
        texts += round(sizes.num_texts * sizes.text_bytes + sizes.num_labels * sizes.label_bytes)
        return texts + 24 * sizes.num_pairs

    @property
    def encoder_table(self) -> int:
        """F D."""
        return NUMBER * self.num_features * self.config.encoder.dim

    @property
    def num_rows(self) -> int:
        """Rows of all tables."""
        encoders = 1 + self.config.heads.separate_encoders
        return self.num_features * encoders + self.own_labels * int(self.config.heads.classifier)

    @property
    def tables(self) -> int:
        """F D for each encoder, L D for the classifiers, perhaps in half precision."""
        number = 2 if self.config.train.classifier_numbers == "float16" else NUMBER
        return self._encoder_tables + number * self._classifier_weights

    @property
    def _encoder_tables(self) -> int:
        return self.encoder_table * (1 + self.config.heads.separate_encoders)

    @property
    def _classifier_weights(self) -> int:
        return self.own_labels * self.dim * int(self.config.heads.classifier)

    @property
    def table_state(self) -> int:
        """Adam has two numbers per weight, momentum one, Adagrad none; all in single precision."""
        weights = self._encoder_tables + NUMBER * self._classifier_weights
        return weights * {"adam": 2, "sgd": 1, "adagrad": 0}[self.config.train.row_optimiser]

    @property
    def row_state(self) -> int:
        """One number per row."""
        return NUMBER * self.num_rows

    @property
    def checkpoints(self) -> int:
        """The one that is being written, the last one and the best network; none if a run is over before the first."""
        train = self.config.train
        num_steps = train.epochs * self.sizes.num_texts / self.batch_size
        if not (self.validates or train.decay_epochs or num_steps > train.checkpoint_every):
            return 0
        return self.finished + self.tables + self.table_state + self.row_state

    @property
    def finished(self) -> int:
        """What a finished training leaves: its last checkpoint and its best network."""
        return 2 * self.tables + self.table_state + self.row_state

    @property
    def lists(self) -> int:
        """Codes and ids of the labels in their lists, of an index on disk."""
        return self.sizes.num_labels * (self.joined // 4 + 8)

    @property
    def codes(self) -> int:
        """Lists and codes of labels before they are sorted by list."""
        return self.sizes.num_labels * (4 + self.joined // 4)

    @property
    def batch_size(self) -> int:
        return self.config.train.batch_size or batch_size_for(self.sizes.num_texts)

    @property
    def step(self) -> int:
        """Scores of a batch with its pool and their gradients for both heads, and the rows of its features."""
        pool = self.sizes.num_labels if self.config.pool.labels == "all" else self.config.pool.size or self.batch_size
        scores = NUMBER * self.batch_size * min(pool, self.sizes.num_labels) * 8
        if self.config.pool.labels == "all":
            scores = min(scores, 512 << 20)
        entries = self.batch_size * self.sizes.text_entries + pool * self.sizes.label_entries
        rows = NUMBER * min(self.num_features, entries / 2) * self.config.encoder.dim * 3
        return round(scores + rows)

    @property
    def num_held_out(self) -> float:
        """Number of held-out texts."""
        return wanted_share(self.config, self.sizes.num_texts) * self.sizes.num_texts

    @property
    def search(self) -> int:
        """Scores of held-out texts with all labels, in blocks where they are many."""
        return min(SEARCH, round(NUMBER * self.num_held_out * self.sizes.num_labels))

    @property
    def ranker(self) -> int:
        """The fit of a ranker to the candidates of held-out texts."""
        fitted = RANKER_TEXT * self.num_held_out if self.config.predict.rank == "learned" else 0
        return max(RANKER, round(fitted))

    @property
    def counted(self) -> int:
        """Keys and counts of distinct features while those of further texts are merged with them."""
        sizes = self.sizes
        occurrences = sizes.num_texts * sizes.text_entries + sizes.num_labels * sizes.label_entries
        return round(32 * min(occurrences, sizes.num_counted + max(MERGE_AT, sizes.num_counted)))

    @property
    def prepared(self) -> int:
        """Features of texts and labels in files."""
        sizes = self.sizes
        texts, labels = sizes.num_texts * (sizes.text_entries + 1), sizes.num_labels * (sizes.label_entries + 1)
        return round(ENTRY * (texts + labels))

    @property
    def knn(self) -> int:
        """Vectors of train texts: as they are where they are few, else 10 bits per number, and their labels."""
        numbers = self.sizes.num_texts * (self.joined - 1)
        if self.sizes.num_texts <= EXACT_UP_TO:
            vectors = 3 * NUMBER * numbers
        else:
            vectors = round(1.25 * numbers) + min(2 * NUMBER * numbers, STREAMED_ABOVE)
        return vectors + 12 * self.sizes.num_pairs

    @property
    def maps_words(self) -> bool:
        """Whether the words of labels are in files."""
        return self.sizes.num_labels > MAPPED_ABOVE

    @property
    def lexical_files(self) -> int:
        """Lists of words, words of labels and their places in files."""
        return round((2 * self.sizes.label_bytes + 24) * self.sizes.num_labels)

    @property
    def lexical(self) -> int:
        """Columns and weights of the words and n-grams of labels, and half of them by word; or a block of them."""
        if self.maps_words:
            return min(LEXICAL_FILED * self.sizes.num_labels, LEXICAL_BLOCK) + NUMBER * self.sizes.num_labels
        return round(1.5 * ENTRY * LEXICAL_ENTRIES * self.sizes.label_bytes * self.sizes.num_labels)

    @property
    def index(self) -> tuple[str, int, int]:
        """The kind of index, its memory and its disk."""
        number, dim = self.sizes.num_labels, self.joined
        kind = "tree" if self.config.has_tree else chosen_kind(self.config.predict.index, number, dim)
        vectors = NUMBER * number * dim
        # Rows that are computed at once are there beside the copy of the index.
        beside = vectors if vectors <= STREAMED_ABOVE else 0
        if kind == "disk":
            # Later the order of all labels, and half of it to sort them.
            return kind, max(self._learned, 12 * number), vectors + self.lists
        if kind == "hnsw":
            return kind, vectors + 272 * number + beside, vectors + 272 * number
        codes = number * dim // 8 + 8 * number if kind == "pq" else 0
        return kind, vectors + codes + beside, vectors + codes

    @property
    def held_out_index(self) -> tuple[dict[str, int], dict[str, int]]:
        """Memory and disk of the index of many labels that held-out texts search."""
        number, dim = self.sizes.num_labels, self.joined
        if self.config.has_tree or number < LISTED_FROM:
            return {}, {}
        if NUMBER * number * dim <= STREAMED_ABOVE:
            return {"index of labels": NUMBER * number * dim + self.codes}, {}
        return {"index of labels": self._learned}, {"index of labels": NUMBER * number * dim + self.lists + self.codes}

    @property
    def _learned(self) -> int:
        """The sample that the lists of an index on disk are learned from."""
        return NUMBER * self.joined * num_lists(self.sizes.num_labels) * LEARNED_PER_LIST

    @property
    def model_folder(self) -> int:
        """Vectors of features, labels and their words, and the kNN part; the index, with classifiers, is beside it."""
        texts = self.sizes.num_texts * min(self.sizes.text_bytes, self.config.predict.snippet_length)
        # Packed: places, frequencies and marks.
        labels = self.sizes.num_labels * (self.sizes.label_bytes + 17)
        saved = self.lexical_files if self.maps_words else self.lexical / 3
        lexical = saved if self.config.predict.rank == "learned" else 0
        knn = self.knn / 2 if self.has_knn else 0
        encoders = STORED[self.config.predict.precision] * self._encoder_tables
        return round(encoders + texts + labels + lexical + knn)

"""Generated data sets of any size with the structure of real ones, written block by block in unidex's own form.

    python benchmarks/scale_set.py FOLDER --labels 1000000 --texts 1000000

Words are drawn by Zipf's law. A label has a topic word, a word that it shares with the three other labels of its
group, and two words of its own. Labels are drawn by a power law, so that most of them have few texts or none. A text
has a label and, in half of the cases, another one of its group; it shows most words of both among words of no meaning.

The labels of a tenth of the texts are drawn at random, so that nobody can predict them: P@1 has a ceiling of 90%.

Every word and label comes from a hash of its place, so that any part can be made without the parts before it.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NUM_TOPICS = 2_000
MAX_WORDS = 200_000
GROUP = 4
WORDS_PER_LABEL = 4
NUM_NOISE = 3  # words of no meaning per text
NOISE_WORDS = 5_000
RANDOM_LABELS = 0.1  # share of the texts whose labels nobody can predict
SHOWN = 0.85  # share of the words of its labels that a text shows
ROWS_AT_ONCE = 1 << 19
LONGEST = 9

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class ScaleSet:
    """The sizes and the seed of a generated set."""

    num_labels: int
    num_texts: int
    num_test: int = 2_000
    seed: int = 0

    @property
    def num_words(self) -> int:
        """Words that labels are made of."""
        return int(min(MAX_WORDS, max(2_000, 2 * self.num_labels)))

    @property
    def ceiling(self) -> float:
        """The highest P@1 that can be reached, in percent; a random label is right by chance only."""
        return 100 * (1 - RANDOM_LABELS)

    def label_words(self, labels: Ints) -> Ints:
        """Words of labels, one row each: topic, word of the group, two of its own."""
        group = labels // GROUP
        topic = zipf(self._uniform(1, group, 0), NUM_TOPICS)
        shared = NUM_TOPICS + zipf(self._uniform(2, group, 0), self.num_words, power=2)
        own = [NUM_TOPICS + zipf(self._uniform(3, labels, place), self.num_words, power=2) for place in (0, 1)]
        return np.stack([topic, shared, *own], axis=1)

    def text_labels(self, texts: Ints) -> Ints:
        """Two labels per text, the second one -1 in half of the cases."""
        rank = zipf(self._uniform(4, texts, 0), self.num_labels, power=3)
        first = rank * self._stride % self.num_labels
        other = first // GROUP * GROUP + (first + 1 + zipf(self._uniform(4, texts, 1), GROUP - 1, power=1)) % GROUP
        has_other = (self._uniform(4, texts, 2) < 0.5) & (other < self.num_labels)
        return np.stack([first, np.where(has_other, other, -1)], axis=1)

    def recorded_labels(self, texts: Ints) -> Ints:
        """The labels that the data set says a text has: now and then random ones."""
        labels = self.text_labels(texts)
        is_random = self._uniform(5, texts, 0) < RANDOM_LABELS
        drawn = (self._uniform(5, texts, 1) * self.num_labels).astype(np.int64)
        return np.where(is_random[:, None], np.stack([drawn, np.full_like(drawn, -1)], axis=1), labels)

    def text_words(self, texts: Ints) -> Ints:
        """Words of texts, one row each; -1 for no word."""
        labels = self.text_labels(texts)
        words = [self.label_words(np.maximum(column, 0)) for column in labels.T]
        words[1][labels[:, 1] < 0] = -1
        found = np.concatenate(words, axis=1)
        for place in range(found.shape[1]):
            found[self._uniform(6, texts, place) > SHOWN, place] = -1
        first_noise = NUM_TOPICS + self.num_words
        noise = [first_noise + zipf(self._uniform(7, texts, place), NOISE_WORDS) for place in range(NUM_NOISE)]
        return np.concatenate([found, np.stack(noise, axis=1)], axis=1)

    @property
    def _stride(self) -> int:
        """Coprime to the number of labels, so that popular labels are spread over all ids."""
        stride = int(self.num_labels * 0.6180339887) | 1
        while np.gcd(stride, self.num_labels) > 1:
            stride += 2
        return stride

    def _uniform(self, purpose: int, rows: Ints, place: int) -> NDArray[np.float64]:
        """A number between 0 and 1 per row by a hash (splitmix64) of seed, purpose, row and place."""
        offset = (self.seed << 48) + (purpose << 8) + place
        x = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(offset * 0xD1342543DE82EF95 % 2**64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        uniform: NDArray[np.float64] = ((x ^ (x >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) / 2**53
        return uniform


def zipf(uniform: NDArray[np.float64], number: int, power: float = 0) -> Ints:
    """Places 0 to ``number`` - 1: by Zipf's law (density 1 / place), or with density place^(1 / power - 1)."""
    places = (number + 1) ** uniform - 1 if power == 0 else number * uniform**power
    return np.minimum(places.astype(np.int64), number - 1)


def word_letters(number: int) -> NDArray[np.uint8]:
    """Pronounceable words of 4 to 8 letters and a blank, one row each, filled up with 0; no two are equal."""
    consonants, vowels = (np.frombuffer(letters, dtype=np.uint8) for letters in (b"bdfgklmnprstvz", b"aeiou"))
    syllables = len(consonants) * len(vowels)
    letters = np.zeros((number, LONGEST), dtype=np.uint8)
    rest, length = np.arange(number), np.where(np.arange(number) < syllables**2, 2, 3)
    for place in range(3):
        syllable = rest % syllables
        rest = rest // syllables
        used = place < length
        letters[used, 2 * place] = consonants[syllable[used] // len(vowels)]
        letters[used, 2 * place + 1] = vowels[syllable[used] % len(vowels)]
    letters[np.arange(number), 2 * length] = ord(" ")
    return letters


def write_texts(file: Path, num_rows: int, words_of, letters: NDArray[np.uint8]) -> None:  # noqa: ANN001
    """Write packed texts (``Texts.load``), of which ``words_of`` gives the words of rows."""
    lengths_of_words = np.append(np.count_nonzero(letters, axis=1), 0)
    ends = np.lib.format.open_memmap(_part(file, "ends"), mode="w+", dtype=np.int64, shape=(num_rows,))
    total = 0
    for rows in _blocks(num_rows):
        # The blank behind the last word is left out.
        lengths = lengths_of_words[words_of(rows)].sum(axis=1) - 1
        ends[rows[0] : rows[-1] + 1] = total + np.cumsum(lengths)
        total = int(ends[rows[-1]])
    block = np.lib.format.open_memmap(_part(file, "bytes"), mode="w+", dtype=np.uint8, shape=(total,))
    with_none = np.concatenate([letters, np.zeros((1, LONGEST), dtype=np.uint8)])
    at = 0
    for rows in _blocks(num_rows):
        spelled = with_none[words_of(rows)].reshape(len(rows), -1)
        last = spelled.shape[1] - 1 - np.argmax(spelled[:, ::-1] > 0, axis=1)
        spelled[np.arange(len(rows)), last] = 0
        written = spelled[spelled > 0]
        block[at : at + len(written)] = written
        at += len(written)
    ends.flush()
    block.flush()


def write_positives(folder: Path, name: str, texts: range, scale: ScaleSet) -> None:
    """Write the positives of texts, and no filter pairs."""
    shape = np.array([len(texts), scale.num_labels], dtype=np.int64)
    starts = np.zeros(len(texts) + 1, dtype=np.int64)
    for rows in _blocks(len(texts)):
        counts = (scale.recorded_labels(rows + texts.start) >= 0).sum(axis=1)
        starts[rows[0] + 1 : rows[-1] + 2] = starts[rows[0]] + np.cumsum(counts)
    index = np.int32 if max(int(starts[-1]), scale.num_labels) < 2**31 else np.int64
    file = folder / f"{name}.positives"
    columns = np.lib.format.open_memmap(_part(file, "indices"), mode="w+", dtype=index, shape=(int(starts[-1]),))
    for rows in _blocks(len(texts)):
        labels = np.sort(scale.recorded_labels(rows + texts.start), axis=1)
        columns[starts[rows[0]] : starts[rows[-1] + 1]] = labels[labels >= 0]
    columns.flush()
    np.save(_part(file, "shape"), shape)
    np.save(_part(file, "indptr"), starts.astype(index))
    np.save(_part(file, "data"), np.ones(int(starts[-1]), dtype=np.float32))
    pairs = folder / f"{name}.filter_pairs"
    np.save(_part(pairs, "shape"), shape)
    np.save(_part(pairs, "indptr"), np.zeros(len(texts) + 1, dtype=np.int32))
    np.save(_part(pairs, "indices"), np.empty(0, dtype=np.int32))
    np.save(_part(pairs, "data"), np.empty(0, dtype=np.bool_))


def write_set(folder: Path, scale: ScaleSet) -> None:
    """Write the whole set; ``unidex.data.formats.read`` reads it, mapped."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = word_letters(NUM_TOPICS + scale.num_words + NOISE_WORDS)
    write_texts(folder / "labels.texts", scale.num_labels, scale.label_words, letters)
    splits = {"test": range(scale.num_test), "train": range(scale.num_test, scale.num_test + scale.num_texts)}
    for name, texts in splits.items():
        write_positives(folder, name, texts, scale)
        first = texts.start
        # The train texts last: a folder without them is not taken for a whole set.
        write_texts(folder / f"{name}.texts", len(texts), lambda rows, at=first: scale.text_words(rows + at), letters)


def _blocks(num_rows: int) -> list[Ints]:
    starts = range(0, num_rows, ROWS_AT_ONCE)
    return [np.arange(start, min(start + ROWS_AT_ONCE, num_rows), dtype=np.int64) for start in starts]


def _part(file: Path, what: str) -> Path:
    return file.with_name(f"{file.name}.{what}.npy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--labels", type=int, default=10_000)
    parser.add_argument("--texts", type=int, default=0, help="as many as labels unless given")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    write_set(options.folder, ScaleSet(options.labels, options.texts or options.labels, seed=options.seed))


if __name__ == "__main__":
    main()

"""Rows of prepared texts in a file that may be larger than memory."""

from itertools import pairwise

import numpy as np
import pytest

from unidex.config import Features
from unidex.features.cache import cached_transform
from unidex.features.extractor import FeatureExtractor
from unidex.storage import mapped
from unidex.training import chosen_rows


@pytest.fixture
def matrix(tmp_path):
    texts = [f"word{number} of {number % 7} letters" for number in range(300)] + [""]
    return cached_transform(FeatureExtractor.fit(texts, [], Features(min_df=1)), texts, tmp_path)


def test_rows_of_a_file_beyond_memory_are_asked_for_one_by_one(matrix, monkeypatch):
    asked, plain = [], mapped.page_ranges
    monkeypatch.setattr(mapped, "page_ranges", lambda *spans: asked.append(spans) or plain(*spans))
    rows = np.array([250, 300, 3, 3, 0])
    assert chosen_rows.taken(matrix, rows).shape[0] == 5
    assert not asked, "a small file stays in memory"
    monkeypatch.setattr(chosen_rows, "MAX_COPY", 0)
    monkeypatch.setattr(chosen_rows, "available_memory", lambda: 0)
    found = chosen_rows.taken(matrix, rows)
    assert np.array_equal(found.toarray(), matrix[rows].toarray())
    # Ids and weights, both of 4 bytes, from the beginning of their files.
    assert len(asked) == 2
    for starts, ends in asked:
        assert np.array_equal(starts, 4 * matrix.indptr[rows])
        assert np.array_equal(ends, 4 * matrix.indptr[rows + 1])


def test_pages_cover_their_parts_and_nothing_else():
    rng = np.random.default_rng(0)
    for _ in range(50):
        starts = rng.integers(0, 10_000, rng.integers(0, 30))
        ends = starts + rng.integers(0, 300, len(starts))
        ranges = mapped.page_ranges(starts, ends, 64)
        covered = {page for first, end in ranges for page in range(first, end, 64)}
        wanted = {page for start, end in zip(starts, ends, strict=True) if end > start
                  for page in range(start // 64 * 64, end, 64)}  # fmt: skip
        assert covered == wanted
        assert all(end < following for (_, end), (following, _) in pairwise(ranges))

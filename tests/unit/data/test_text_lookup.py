import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unidex.data import text_lookup
from unidex.data.text_lookup import order_by_text, rows_with
from unidex.data.texts import Texts


@given(st.lists(st.text(max_size=24) | st.sampled_from(["Straße, long", "strasse, long A", "STRASSE, long a"])))
def test_the_order_is_that_of_whole_texts_in_any_case(texts):
    assert order_by_text(texts).tolist() == sorted(range(len(texts)), key=lambda row: texts[row].casefold())


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_blocks_of_packed_texts_give_the_same_order(monkeypatch, at_once):
    monkeypatch.setattr(text_lookup, "_TEXTS_AT_ONCE", at_once)
    texts = ["b", "a common beginning of texts, 2", "A common beginning of texts, 1", "", "b", "é", "z"]
    assert order_by_text(Texts.of(texts)).tolist() == [3, 2, 1, 0, 4, 6, 5]


def test_parts_are_found_in_every_block(monkeypatch):
    monkeypatch.setattr(text_lookup, "_TEXTS_AT_ONCE", 2)
    assert np.flatnonzero(rows_with(Texts.of(["STRASSE", "x", "Straße", "y", "straß"]), "strass")).tolist() == [0, 2, 4]

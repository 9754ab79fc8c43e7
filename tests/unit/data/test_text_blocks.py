"""Blocks of texts."""

from hypothesis import given
from hypothesis import strategies as st

from unidex.data.text_blocks import text_blocks


@given(st.lists(st.text(max_size=9)), st.integers(1, 5), st.integers(1, 20))
def test_blocks_keep_all_texts_in_order_and_their_bounds(texts, max_texts, max_characters):
    blocks = list(text_blocks(iter(texts), max_texts, max_characters))
    assert [text for block in blocks for text in block] == texts
    for block in blocks:
        assert 1 <= len(block) <= max_texts
        assert sum(map(len, block[:-1])) < max_characters

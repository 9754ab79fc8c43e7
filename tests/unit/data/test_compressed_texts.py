"""Compressed texts: each comes back by itself, and damaged files are named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from unidex.data.compressed_texts import PER_BLOCK, CompressedTexts
from unidex.data.texts import Texts
from unidex.errors import ModelError


@given(st.lists(st.text(max_size=8), max_size=20))
@hypothesis_settings(deadline=None)
def test_texts_come_back(tmp_path_factory, texts):
    file = tmp_path_factory.mktemp("texts") / "names"
    assert not CompressedTexts.is_at(file)
    CompressedTexts.of(texts).save(file)
    assert CompressedTexts.is_at(file)
    assert list(CompressedTexts.load(file, len(texts))) == texts


def test_a_text_of_many_is_found_by_its_place(tmp_path):
    texts = [f"text {number}" for number in range(3 * PER_BLOCK + 5)]
    CompressedTexts.of(texts).save(tmp_path / "x")
    found = CompressedTexts.load(tmp_path / "x", len(texts))
    for place in (0, PER_BLOCK - 1, PER_BLOCK, 3 * PER_BLOCK + 4, -1):
        assert found[place] == texts[place]
    assert found[PER_BLOCK - 1 : PER_BLOCK + 1] == texts[PER_BLOCK - 1 : PER_BLOCK + 1]
    with pytest.raises(IndexError):
        found[len(texts)]
    assert (tmp_path / "x.texts").stat().st_size < 0.5 * sum(map(len, texts))


def test_damaged_texts_are_named(tmp_path):
    texts = [str(number) for number in range(2000)]
    CompressedTexts.of(texts).save(tmp_path / "x")
    content = (tmp_path / "x.texts").read_bytes()
    with pytest.raises(ModelError, match=r"x\.blocks\.npy: a saved array must have shape 5"):
        CompressedTexts.load(tmp_path / "x", 5000)
    with pytest.raises(ModelError, match="there must be 1000 texts"):
        CompressedTexts.load(tmp_path / "x", 2024)[2000]
    (tmp_path / "x.texts").write_bytes(content[:-1])
    with pytest.raises(ModelError, match="must ascend to the end"):
        CompressedTexts.load(tmp_path / "x", 2000)
    (tmp_path / "x.texts").write_bytes(bytes(len(content)))
    with pytest.raises(ModelError, match="texts cannot be read"):
        CompressedTexts.load(tmp_path / "x", 2000)[7]
    (tmp_path / "x.texts").unlink()
    with pytest.raises(ModelError, match="texts cannot be read"):
        CompressedTexts.load(tmp_path / "x", 2000)
    np.save(tmp_path / "x.blocks.npy", np.array([9, 3]))
    (tmp_path / "x.texts").write_bytes(bytes(3))
    with pytest.raises(ModelError, match="must ascend to the end"):
        CompressedTexts.load(tmp_path / "x", 2000)


def test_texts_in_one_piece_are_compressed_as_others_are():
    texts = [f"é{number}" * (number % 5) for number in range(PER_BLOCK + 3)]
    packed = Texts.of(texts)
    for some in (packed, packed[::2]):
        found, expected = CompressedTexts.of(some), CompressedTexts.of(list(some))
        assert list(found) == list(some)
        assert found._content.tobytes() == expected._content.tobytes()

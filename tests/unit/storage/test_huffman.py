"""Bytes with short codes: the same by the kernel and by zlib, and damage is refused."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unidex import native
from unidex.storage.huffman import compress, decompress

needs_kernels = pytest.mark.skipif(native.kernels is None, reason="without compiled kernels")


def drawn(spread, size, seed=0):
    """Numbers around 0 as bytes."""
    numbers = np.random.default_rng(seed).standard_normal(size) * spread
    return np.clip(np.rint(numbers), -127, 127).astype(np.int8).view(np.uint8)


def by_kernel(content, size):
    """What the kernel reads, or None where it leaves the content to zlib."""
    found = np.full(size, 7, dtype=np.uint8)
    return found if native.kernels.read_bytes(content[2:-4], found) else None


@needs_kernels
@pytest.mark.parametrize("size", [40_000, 400_003])
@pytest.mark.parametrize("spread", [0.2, 2.7, 12, 60])
def test_the_kernel_reads_what_zlib_reads(spread, size):
    wanted = drawn(spread, size)
    content = compress(wanted)
    assert zlib.decompress(content) == wanted.tobytes()
    assert np.array_equal(by_kernel(content, size), wanted)
    assert by_kernel(content, size - 1) is None
    assert by_kernel(content, size + 1) is None
    for length in (0, 1, 30, len(content) // 2, len(content) - 7):
        assert not native.kernels.read_bytes(content[2:length], np.empty(size, dtype=np.uint8))


@needs_kernels
def test_the_kernel_reads_codes_longer_than_its_table():
    # Each of the last bytes is half as frequent as the one before: codes of up to 15 bits.
    wanted = np.repeat(np.arange(16, dtype=np.uint8), [1 << max(0, 14 - at) for at in range(16)])
    wanted = np.random.default_rng(1).permutation(wanted)
    assert np.array_equal(by_kernel(compress(wanted), len(wanted)), wanted)


@needs_kernels
def test_the_kernel_leaves_copies_to_zlib():
    repeated = np.tile(drawn(3, 1000), 50)
    content = zlib.compress(repeated, 9)
    assert by_kernel(content, len(repeated)) is None
    assert np.array_equal(decompress(content, len(repeated)), repeated)


@needs_kernels
@pytest.mark.parametrize("size", [1, 5, 300, 5000, 70_000])
def test_the_kernel_reads_plain_bytes_and_the_usual_codes(size):
    noise = np.random.default_rng(0).integers(0, 256, size).astype(np.uint8)
    usual = zlib.compressobj(1, zlib.DEFLATED, strategy=zlib.Z_FIXED)
    distinct = np.random.default_rng(0).permutation(256).astype(np.uint8)[:size]
    for wanted, content in (
        (noise, zlib.compress(noise, 0)),
        (noise, compress(noise)),
        (distinct, usual.compress(distinct) + usual.flush()),
    ):
        assert np.array_equal(by_kernel(content, len(wanted)), wanted)
        assert by_kernel(content, len(wanted) + 1) is None
        assert by_kernel(content, len(wanted) - 1) is None


@pytest.mark.parametrize("is_native", [False, True])
@given(st.binary(max_size=300))
def test_bytes_come_back(is_native, content):
    with pytest.MonkeyPatch.context() as patch:
        if not is_native:
            patch.setattr(native, "kernels", None)
        assert decompress(compress(content), len(content)).tobytes() == content


@pytest.mark.parametrize("is_native", [False, True])
def test_damage_is_refused(is_native, monkeypatch):
    if not is_native:
        monkeypatch.setattr(native, "kernels", None)
    wanted = drawn(2.7, 50_000)
    content = compress(wanted)
    with pytest.raises(ValueError, match="there must be 49999 bytes"):
        decompress(content, 49_999)
    with pytest.raises(ValueError, match="there must be"):
        decompress(content[:-9], 50_000)
    with pytest.raises(ValueError, match="there must be"):
        decompress(b"", 5)
    rng = np.random.default_rng(0)
    for place in rng.integers(2, len(content), 300):
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        with pytest.raises(ValueError):  # noqa: PT011 (what is wrong depends on the place)
            decompress(bytes(changed), 50_000)

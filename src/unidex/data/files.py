"""Files as lines, texts and sparse tables; whatever is wrong in one becomes a DataError with its file and line."""

from __future__ import annotations

import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from gzip import GzipFile
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from unidex import progress
from unidex.data.texts import Texts
from unidex.errors import DataError, quoted

CHUNK_BYTES = 1 << 17  # what is parsed from a piece still fits into the processor's cache: nearly twice as fast as 1 MB
MAX_COLUMNS = 2**31 - 1
_ROWS = 8192
_FINITE = "values must be finite numbers"
Fail = Callable[[str], DataError]  # makes the error of one line


def chunks(file: Path) -> Iterator[tuple[int, bytes]]:
    """Whole lines of a plain or gzipped file in pieces of about 128 KB, each with the number of its first line.

    Reading piece by piece keeps memory at one piece and lets a parser take many lines in one call. A file that holds
    nothing at all is an error: no format of ours has an empty file that means something.
    """
    line = 1
    rest: list[bytes] = []
    empty = True
    try:
        for piece in _decompressed(file):
            empty = False
            cut = piece.rfind(b"\n") + 1
            if cut == 0:
                rest.append(piece)
                continue
            whole = b"".join([*rest, piece[:cut]])
            rest = [piece[cut:]] if cut < len(piece) else []
            yield line, whole
            line += count_lines(whole)
    except (EOFError, zlib.error):
        raise DataError(
            f"the gzip stream is cut off or damaged in line {line}; copy or download the file again", file=file
        ) from None
    if empty:
        raise DataError("the file must hold at least one line, but is empty; write it again or take it away", file=file)
    if rest:
        yield line, b"".join(rest)


def count_lines(block: bytes) -> int:
    r"""Lines in a block; the last need not end with \n.

    >>> count_lines(b"a\nb"), count_lines(b"a\nb\n")
    (2, 2)
    """
    ends = int(np.count_nonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")))
    return ends + (not block.endswith(b"\n"))


def _decompressed(file: Path) -> Iterator[bytes]:
    try:
        with file.open("rb") as raw, progress.task(f"reading {file.name}", file.stat().st_size, unit="B") as advance:
            zipped = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            seen = 0
            for piece in _gunzipped(raw) if zipped else iter(partial(raw.read, CHUNK_BYTES), b""):
                yield piece
                here = raw.tell()
                advance(here - seen)
                seen = here
    except FileNotFoundError:
        raise DataError("the file must exist, but does not", file=file) from None
    except IsADirectoryError:
        raise DataError("a file is needed here, but this is a folder", file=file) from None
    except PermissionError:
        raise DataError("the file cannot be opened: permission denied", file=file) from None


def _gunzipped(raw: IO[bytes]) -> Iterator[bytes]:
    """A gzip stream, member after member, in pieces of bounded size; zeros behind the last member are padding.

    Straight on zlib it takes less time than gzip.GzipFile, and all that stands before a cut comes out, so that the cut
    can be given its line.
    """
    member = zlib.decompressobj(wbits=31)
    while waiting := raw.read(CHUNK_BYTES):
        while waiting:
            if member.eof:
                waiting = waiting.lstrip(b"\0")
                if not waiting:
                    break
                member = zlib.decompressobj(wbits=31)
            if piece := member.decompress(waiting, CHUNK_BYTES):
                yield piece
            waiting = member.unused_data if member.eof else member.unconsumed_tail
    if rest := member.flush():
        yield rest
    if not member.eof:
        raise EOFError


def lines(file: Path) -> Iterator[tuple[int, str]]:
    r"""Numbered lines without their end (\n or \r\n). Only \n ends a line: U+2028 and the like are part of a text."""
    for first, block in chunks(file):
        text = decoded(block, file, first)
        rows = text.split("\n")
        if block.endswith(b"\n"):
            rows.pop()
        for number, row in enumerate(rows, first):
            yield number, row[:-1] if row.endswith("\r") else row


def decoded(block: bytes, file: Path, first_line: int) -> str:
    """UTF-8 bytes of whole lines as a string; a byte that is not UTF-8 is named with its line."""
    try:
        text = block.decode()
    except UnicodeDecodeError as error:
        line = first_line + block.count(b"\n", 0, error.start)
        # Most files that are not UTF-8 come from Windows; UTF-16 starts with a mark of its own.
        encoding = "UTF-16" if first_line == 1 and block[:2] in (b"\xff\xfe", b"\xfe\xff") else "WINDOWS-1252"
        raise DataError(
            f"the file must be UTF-8, but has the byte 0x{block[error.start]:02x}; save it as UTF-8 "
            f"(in Excel: CSV UTF-8), or convert it: iconv -f {encoding} -t UTF-8 {shlex.quote(file.name)} > utf8-"
            f"{shlex.quote(file.name)}",
            file=file,
            line=line,
        ) from None
    return text.removeprefix("\ufeff") if first_line == 1 else text


def text_lines(file: Path) -> Texts:
    """A file of one text per line."""
    return Texts.of(text for _, text in lines(file))


def whole_number(token: str, what: str, fail: Fail) -> int:
    """A token that must be a whole number >= 0."""
    # isascii: int() also takes digits of other scripts, signs, blanks and underscores.
    if not (token.isascii() and token.isdigit()) or len(token) > 18:
        raise fail(f"{what} must be a whole number >= 0, but is {quoted(token)}")
    return int(token)


def read_header(file: Path, header: str, *names: str) -> list[int]:
    """The whole numbers of a first line: of rows, then of columns; a mistake there must not take all memory."""
    fail: Fail = partial(DataError, file=file, line=1)
    tokens = header.split()
    if len(tokens) != len(names):
        raise fail(f"the first line must be '{' '.join(names)}', but is {quoted(header)}")
    numbers = [whole_number(token, f"the number of {name}", fail) for token, name in zip(tokens, names, strict=True)]
    for number, name in zip(numbers[1:], names[1:], strict=True):
        if number > MAX_COLUMNS:
            raise fail(f"the number of {name} must be at most {MAX_COLUMNS}, but is {number}")
    return numbers


def counted_rows(numbered: Iterator[tuple[int, str]], num_rows: int, file: Path) -> Iterator[tuple[str, Fail]]:
    """The rows behind a header, each with its error; there must be as many as the header says."""
    found = 0
    for number, line in numbered:
        fail: Fail = partial(DataError, file=file, line=number)
        if found < num_rows:
            found += 1
            yield line, fail
        elif line.strip():
            raise fail(f"the header names {num_rows} rows, but there are more")
    if found != num_rows:
        raise DataError(f"the header names {num_rows} rows, but the file has {found}", file=file, line=found + 1)


def read_filter_pairs(file: Path, num_rows: int, num_labels: int) -> sparse.csr_array:
    """Pairs "row label", one per line; an empty or missing file is no pairs."""
    if not file.exists() or file.stat().st_size == 0:
        return sparse.csr_array((num_rows, num_labels), dtype=bool)
    pairs: list[tuple[int, int]] = []
    for number, line in lines(file):
        fail: Fail = partial(DataError, file=file, line=number)
        tokens = line.split()
        if not tokens:
            continue
        if len(tokens) != 2:
            raise fail(f"a filter pair must be 'row label', but is {quoted(line)}")
        row = whole_number(tokens[0], "the row of a filter pair", fail)
        label = whole_number(tokens[1], "the label of a filter pair", fail)
        if row >= num_rows or label >= num_labels:
            raise fail(
                f"a filter pair must have a row below {num_rows} and a label below {num_labels}, but is {row} {label}; "
                "is this the filter file of another data set?"
            )
        pairs.append((row, label))
    rows, labels = zip(*pairs, strict=True) if pairs else ((), ())
    values = np.ones(len(pairs), dtype=bool)
    return sparse.csr_array((values, (rows, labels)), shape=(num_rows, num_labels))


def write_json_lines(out: IO[bytes] | GzipFile, rows: Iterator[Any]) -> None:
    """Write rows as JSON lines, some thousand at a time."""
    encode_lines = msgspec.json.Encoder().encode_lines
    while block := list(islice(rows, _ROWS)):
        out.write(encode_lines(block))


def write_filter_pairs(file: Path, pairs: sparse.csr_array) -> None:
    """Write pairs "row label", one per line."""
    rows = np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
    with file.open("w", encoding="utf-8") as out:
        out.writelines(f"{row} {label}\n" for row, label in zip(rows.tolist(), pairs.indices.tolist(), strict=True))


def read_sparse(file: Path) -> sparse.csr_array:
    """A sparse table: scipy .npz, or xclib text (header "rows columns", then "column:value ..." a row)."""
    return _read_npz(file) if file.suffix == ".npz" else _read_sparse_text(file)


def _read_npz(file: Path) -> sparse.csr_array:
    remedy = "write it with scipy.sparse.save_npz from a CSR matrix"
    try:
        with file.open("rb") as raw:
            loaded = sparse.load_npz(raw)
    except FileNotFoundError:
        raise DataError("the file must exist, but does not", file=file) from None
    # A damaged archive fails in many ways inside the zip, the header or the matrix; all mean the same to the user.
    except Exception as error:
        raise DataError(
            f"the file must be a sparse matrix, but cannot be read ({error}); {remedy}", file=file
        ) from None
    if loaded.ndim != 2 or loaded.dtype.kind not in "bifu":
        raise DataError(f"the matrix must be a table of numbers, but is {loaded.dtype}; {remedy}", file=file)
    try:
        if loaded.format in ("csr", "csc", "bsr"):
            # Before the conversion, which trusts the indices and would write outside its arrays.
            check_indices(loaded)
        matrix = sparse.csr_array(loaded)
        check_indices(matrix)
    except (ValueError, IndexError, TypeError, OverflowError, MemoryError) as error:
        raise DataError(f"the matrix breaks the CSR form ({error}); {remedy}", file=file) from None
    table = sparse.csr_array((single(matrix.data), matrix.indices, matrix.indptr), shape=matrix.shape)
    refuse_entries(~np.isfinite(table.data), table, _FINITE, file)
    return table


def check_indices(matrix: Any) -> None:
    """Raise ValueError where a compressed matrix points outside itself.

    SciPy's own check takes an indptr that ends below zero for that of an empty matrix.
    """
    matrix.check_format(full_check=True)
    if bool(np.any(np.diff(matrix.indptr) < 0)):
        raise ValueError("index pointer values must form a non-decreasing sequence")


def _read_sparse_text(file: Path) -> sparse.csr_array:
    numbered = lines(file)
    num_rows, num_columns = read_header(file, next(numbered)[1], "rows", "columns")
    entries = SparseEntries(num_columns)
    for line, fail in counted_rows(numbered, num_rows, file):
        entries.add(line.split(), fail)
    return entries.matrix(file, header_lines=1)


class SparseEntries:
    """Collects "column:value" entries, row by row."""

    def __init__(self, num_columns: int) -> None:
        self._num_columns = num_columns
        self._columns: list[int] = []
        self._values: list[float] = []
        self._ends = [0]

    def add(self, tokens: Iterable[str], fail: Fail) -> None:
        """Add one row."""
        for token in tokens:
            column, colon, value = token.partition(":")
            if not colon:
                raise fail(f"an entry must be 'column:value', but is {quoted(token)}")
            index = whole_number(column, "a column", fail)
            if index >= self._num_columns:
                raise fail(f"a column must be below {self._num_columns}, but is {index}")
            try:
                # float() also takes digits of other scripts, blanks and underscores.
                self._values.append(float(value if value.isascii() and "_" not in value else "not a number"))
            except ValueError:
                raise fail(f"a value must be a number, but is {quoted(value)}") from None
            self._columns.append(index)
        self._ends.append(len(self._columns))

    def matrix(self, file: Path, *, header_lines: int) -> sparse.csr_array:
        """All rows; a value that is not finite is refused with its line."""
        shape = (len(self._ends) - 1, self._num_columns)
        arrays = (single(self._values), np.array(self._columns, dtype=np.int64), np.array(self._ends))
        table = sparse.csr_array(arrays, shape=shape)
        refuse_entries(~np.isfinite(table.data), table, _FINITE, file, header_lines)
        return table


def single(values: ArrayLike) -> NDArray[np.float32]:
    """Numbers in single precision; one that is too large becomes inf, which is refused with its line."""
    with np.errstate(over="ignore"):
        return np.asarray(values).astype(np.float32)


def refuse_entries(
    bad: NDArray[np.bool_], table: sparse.csr_array, rule: str, file: Path, header_lines: int | None = None
) -> None:
    """Refuse a table with bad entries; ``header_lines`` are before its first row, None for a file without lines."""
    if bad.any():
        first = int(np.argmax(bad))
        row = int(np.searchsorted(table.indptr, first, side="right")) - 1
        raise DataError(
            f"{rule}, but one in row {row} is {table.data[first]:g}; drop the pair or give it a weight",
            file=file,
            line=None if header_lines is None else row + 1 + header_lines,
        )


def check_rows(found: int, expected: int, what: str, file: Path, other: Path) -> None:
    """Two files that speak of the same rows must have the same number of them."""
    if found != expected:
        line = None if file.suffix == ".npz" else min(found, expected + 1)
        raise DataError(f"{what} must have {expected} rows, as {other.name} has, but has {found}", file=file, line=line)

"""The journal of label changes: additions, removals and renamings after a model folder was saved.

``changes.jsonl`` is in the model folder, but not in its manifest. Its first line names the manifest that it belongs
to; each further line is one change: ``{"add": [{"uid": ..., "text": ...}, ...]}``, ``{"remove": [uid, ...]}`` or
``{"rename": {"uid": ..., "text": ...}}``. An added label may have the fields of a `Concept` too, such as further texts.
An incomplete line, left by a killed process, is dropped. `Model.apply` applies changes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec

from unidex.data.concepts import Concept, checked_term
from unidex.errors import DataError, ModelError, listed, quoted
from unidex.storage.atomic import sync
from unidex.storage.locks import WAIT_SECONDS, locked

FILE = "changes.jsonl"
_BATCH = 1024  # maximum number of labels that are added at once when a journal is read
Change = Mapping[str, Any]


class NamedText(msgspec.Struct, forbid_unknown_fields=True):
    """A label by the user's own name, and its text."""

    uid: str
    text: str


class NewLabel(Concept, frozen=True, forbid_unknown_fields=True):
    """A label to add."""

    uid: str
    text: str


class _Change(msgspec.Struct, forbid_unknown_fields=True):
    add: list[NewLabel] | msgspec.UnsetType = msgspec.UNSET
    remove: list[str] | msgspec.UnsetType = msgspec.UNSET
    rename: NamedText | msgspec.UnsetType = msgspec.UNSET


class _Header(msgspec.Struct):
    model: str


def parse_change(change: Change) -> tuple[list[NewLabel], list[str], NamedText | None]:
    """The labels that a change adds, removes and renames; it does one of the three.

    >>> parse_change({"remove": ["7"]})
    ([], ['7'], None)
    >>> parse_change({"remove": ["7"], "add": []})
    Traceback (most recent call last):
    unidex.errors.DataError: a change must be one of add, remove and rename, but is add, remove
    """
    try:
        found = msgspec.convert(change, _Change)
    except msgspec.ValidationError as error:
        raise DataError(f"a change of labels must have the form of one, but: {error}") from None
    given = {name: getattr(found, name) for name in _Change.__struct_fields__}
    given = {name: value for name, value in given.items() if value is not msgspec.UNSET}
    if len(given) != 1:
        raise DataError(f"a change must be one of add, remove and rename, but is {', '.join(given) or 'none'}")
    for label in [*given.get("add", []), *([given["rename"]] if "rename" in given else [])]:
        check_label(label.uid, label.text)
    for label in given.get("add", []):
        for term in label.texts:
            checked_term(term)
    return given.get("add", []), given.get("remove", []), given.get("rename")


def check_change(change: Change, known: Container[str]) -> list[str]:
    """Refuse a change that does not fit the labels ``known``; the result is the uids that it adds.

    >>> check_change({"rename": {"uid": "7", "text": "Shoe"}}, {"8"})
    Traceback (most recent call last):
    unidex.errors.DataError: a label must be one of the model's, but it has no label with uid '7'
    """
    added, removed, renamed = parse_change(change)
    for uid in [*removed, *([renamed.uid] if renamed else [])]:
        if uid not in known:
            raise DataError(unknown_label(uid))
    uids = [label.uid for label in added]
    check_uids(uids, known)
    return uids


def check_uids(uids: Sequence[str], known: Container[str]) -> None:
    """Refuse uids that labels have already, or that are given twice."""
    seen: set[str] = set()
    again = []
    for uid in uids:
        if uid in known or uid in seen:
            again.append(uid)
        seen.add(uid)
    if again:
        raise DataError(f"uids of labels must differ, but there is already {listed(again)}")


def unknown_label(uid: str) -> str:
    """The error message for a uid that no label has."""
    return f"a label must be one of the model's, but it has no label with uid {quoted(uid)}"


def check_label(uid: str, text: str) -> None:
    """Refuse a label without a uid or a text, or with one that is not Unicode."""
    for what, value in (("uid", uid), ("text", text)):
        if not value.strip():
            raise DataError(f"a label must have a {what} that is not blank, but {quoted(uid or text)} has none")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise DataError(f"the {what} of a label must be Unicode, but has half a character: {value!a}") from None


def manifest_hash(folder: Path) -> str:
    """The sha256 of a folder's manifest, which identifies a model; "" where there is none."""
    try:
        return hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    except OSError:
        return ""


class Journal:
    """The changes of a model folder, to read and to append to.

    A journal belongs to the manifest that the folder has now. Once the folder is replaced, the journal gives no more
    changes, and none can be appended.
    """

    def __init__(self, folder: str | Path, *, wait_seconds: float = WAIT_SECONDS) -> None:
        self.folder = Path(folder)
        self.file = self.folder / FILE
        self.model = manifest_hash(self.folder)
        self._wait_seconds = wait_seconds
        self._read_to, self._num_lines = 0, 0  # read by ``unread``
        self._known_to = 0  # read or written by this journal; other processes may have appended more
        self._seen: tuple[int, ...] = ()
        self._bad: ModelError | None = None

    @property
    def version(self) -> str:
        """The model that the journal belongs to: 12 digits of the hash of its manifest."""
        return self.model[:12]

    def is_current(self) -> bool:
        """Whether the folder still holds the model that the journal belongs to."""
        return manifest_hash(self.folder) == self.model

    def locked(self) -> AbstractContextManager[None]:
        """A lock: no other process appends or replaces the folder meanwhile."""
        return locked(self.folder, wait_seconds=self._wait_seconds)

    def state(self) -> tuple[int, ...]:
        """Numbers that differ when the file changed; none if there is no file."""
        try:
            found = self.file.stat()
        except OSError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns

    def unread(self) -> list[tuple[int, Change]]:
        """The changes that any process has appended since the last call, each with the number of its line.

        Without any, it costs one stat of the file. A line that is not a change raises a ModelError.
        """
        if self._bad is not None:
            raise self._bad
        seen = self.state()
        if seen == self._seen or not self.is_current():
            return []
        written = self._written_from(self._read_to)
        # An incomplete last line is from a killed process, or another process is writing it now.
        whole = written[: written.rfind(b"\n") + 1]
        changes = []
        for line in whole.splitlines(keepends=True):
            self._num_lines += 1
            if self._num_lines == 1:
                self._check_header(line)
            else:
                changes.append((self._num_lines, self._decoded(line)))
        self._read_to += len(whole)
        self._known_to = max(self._known_to, self._read_to)
        self._seen = seen
        return changes

    def append(self, change: Change) -> None:
        """Append a change and return once it is on the disk; `unread` gives it too.

        It must fit the model after all earlier changes. So read to the end, check and append under the lock, as
        ``Model.change`` does; if other processes have appended meanwhile, the change is refused.
        """
        parse_change(change)
        if self._bad is not None:
            raise self._bad
        line = msgspec.json.encode(change) + b"\n"
        with self.locked():
            if not self.is_current():
                raise ModelError(
                    f"{self.folder}: the model that labels are changed of must be the one that was loaded "
                    f"({self.version}), but it was replaced; load the folder again"
                )
            if b"\n" in self._written_from(self._known_to):
                raise ModelError(
                    f"{self.file}: all changes must be read before another is appended, but others have appended some; "
                    "read them first, as Model.change does"
                )
            self._write(line)

    def batches(self, known: Callable[[], Container[str]]) -> Iterator[Change]:
        """The unread changes, checked; consecutive additions are one change.

        Args:
            known: gives the uids of the labels as they are now, after all changes given before.
        """
        added: list[Any] = []
        uids: set[str] = set()
        for number, change in self.unread():
            joins = "add" in change and len(added) + len(change["add"]) <= _BATCH
            if added and not joins:
                yield {"add": added}
                added, uids = [], set()
            try:
                new = check_change(change, known())
                check_uids(new, uids)
            except DataError as error:
                raise self.refuse(number, error) from None
            if "add" in change:
                added += change["add"]
                uids.update(new)
            else:
                yield change
        if added:
            yield {"add": added}

    def refuse(self, number: int, error: Exception) -> ModelError:
        """The error of an invalid line; no later line is read, and nothing more is appended."""
        self._bad = ModelError(
            f"{self.file}:{number}: a line must be a change of labels that the model can take, but: {error}; "
            "copy the model again"
        )
        return self._bad

    def _write(self, line: bytes) -> None:
        if self._known_to == 0:
            line = msgspec.json.encode(_Header(self.model)) + b"\n" + line
        try:
            descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                # An incomplete line of a killed process was never acknowledged.
                os.ftruncate(descriptor, self._known_to)
                try:
                    _write_all(descriptor, line, self._known_to)
                    os.fsync(descriptor)
                except OSError:
                    os.ftruncate(descriptor, self._known_to)
                    raise
            finally:
                os.close(descriptor)
            if self._known_to == 0:
                sync(self.folder)
        except OSError as error:
            raise ModelError(
                f"{self.file}: a change must be on the disk before it counts, but cannot be written "
                f"({error.strerror}); nothing was changed"
            ) from None
        self._known_to += len(line)

    def _written_from(self, start: int) -> bytes:
        try:
            with self.file.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(start)
                found = file.read()
        except FileNotFoundError:
            size, found = 0, b""
        except OSError as error:
            raise ModelError(f"{self.file}: the changes of labels cannot be read ({error.strerror})") from None
        if size < start:
            raise ModelError(
                f"{self.file}: changes must only be appended, but {start - size:,} bytes that were there are gone; "
                "load the folder again"
            )
        return found

    def _check_header(self, line: bytes) -> None:
        try:
            model = msgspec.json.decode(line, type=_Header).model
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = "does not"
        else:
            found = f"names {quoted(model[:12])}"
            if model == self.model:
                return
        self._bad = ModelError(
            f"{self.file}:1: the changes must be of the model in the folder and begin with "
            f'{{"model": "{self.version}..."}}, but this line {found}; '
            f"put that model's files back, or remove {FILE} to do without its changes"
        )
        raise self._bad

    def _decoded(self, line: bytes) -> Change:
        try:
            change: Change = msgspec.json.decode(line, type=dict[str, Any])
            parse_change(change)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, DataError) as error:
            raise self.refuse(self._num_lines, error) from None
        return change


def _write_all(descriptor: int, line: bytes, start: int) -> None:
    written = 0
    while written < len(line):
        written += os.pwrite(descriptor, line[written:], start + written)

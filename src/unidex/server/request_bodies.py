"""Decode the bodies of requests, or raise a problem that names the field and its rule."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from unidex.errors import listed, quoted
from unidex.server.problems import ProblemError
from unidex.server.schemas import ExplainRequest, NewLabel, NewLabels, PredictRequest, RenameRequest, TeachRequest
from unidex.server.settings import Limits

T = TypeVar("T", bound=msgspec.Struct)
_decoders: dict[type[msgspec.Struct], msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind)
    for kind in (PredictRequest, ExplainRequest, NewLabels, RenameRequest, TeachRequest)
}
# A body up to this size is decoded in less than a millisecond.
SMALL_BODY = 64 << 10
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "array": "a list",
    "object": "an object",
    "bool": "true or false",
    "null": "null",
}
_CHOICES = {"mode": "both, dual or classifier"}
_place = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_name = re.compile(r"\.(\w+)|\[\.\.\.\]")


async def read_request(kind: type[T], body: bytes) -> T:
    """Decode a body; a large one in a thread, so that the event loop can serve others."""
    if len(body) <= SMALL_BODY:
        return decode(kind, body)
    return await asyncio.to_thread(decode, kind, body)


def decode(kind: type[T], body: bytes) -> T:
    """Decode a body.

    >>> decode(PredictRequest, b'{"text": "a", "k": 3}').k
    3
    >>> decode(PredictRequest, b'{"text": "a", "k": 0}')
    Traceback (most recent call last):
    unidex.server.problems.ProblemError: k must be at least 1, but is 0
    >>> decode(PredictRequest, b'{"texts": "a"}')
    Traceback (most recent call last):
    unidex.server.problems.ProblemError: texts must be a list, but is 'a'
    """
    try:
        request: T = _decoders[kind].decode(body)
    except msgspec.ValidationError as error:
        raise _of_field(kind, body, str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProblemError(400, f"the body must be JSON, but is not: {error}") from None
    except RecursionError:
        raise ProblemError(400, "the body must be JSON of a few levels, but has too many") from None
    return request


def _of_field(kind: type[msgspec.Struct], body: bytes, message: str) -> ProblemError:
    """Return a problem for a message of the decoder, such as "Expected `int`, got `str` - at `$.k`"."""
    place = _place.search(message)
    path = [part[1] for part in _name.finditer(place["path"])] if place else []
    rule = message[: place.start()] if place else message
    names = [name for name in path if name]
    field = names[-1] if names else None
    if unknown := re.search(r"unknown field `(.*)`", rule):
        known = listed(name for name in kind.__struct_fields__)
        return ProblemError(
            422, f"a request must have no fields but {known}, but has {quoted(unknown[1])}", field=unknown[1][:100]
        )
    if missing := re.search(r"missing required field `(.*)`", rule):
        return ProblemError(422, f"a request must have {missing[1]}, but has not", field=missing[1])
    what = f"each of {field}" if None in path and path[-1] is None else field or "the body"
    found = _value_at(body, path)
    if kinds := re.match(r"Expected `(.*?)`, got `(.*)`", rule):
        wanted = " or ".join(_WORDS.get(name, name) for name in kinds[1].split(" | "))
        shown = _WORDS.get(kinds[2], kinds[2]) if found is None or kinds[2] in ("object", "array") else found
        return ProblemError(422, f"{what} must be {wanted}, but is {shown}", field=field)
    if bound := re.match(r"Expected `\w+` (of length )?(>=|<=) (\S+)", rule):
        side = "at least" if bound[2] == ">=" else "at most"
        holds = {"array": "have {} {} entries", "str": "have {} {} characters"} if bound[1] else {}
        form = holds.get(re.match(r"Expected `(\w+)`", rule)[1], "be {} {}")  # type: ignore[index]
        return ProblemError(422, f"{what} must {form.format(side, bound[3])}, but is {found or 'not'}", field=field)
    if "matching regex" in rule:
        return ProblemError(422, f"{what} must have more than spaces, but is {found or 'not'}", field=field)
    if field in _CHOICES:
        return ProblemError(422, f"{what} must be {_CHOICES[field]}, but is {found or 'not'}", field=field)
    return ProblemError(422, f"{what} must be as the OpenAPI document says, but: {rule}", field=field)


def _value_at(body: bytes, path: list[str | None]) -> str | None:
    """Return the quoted value at a path of the body; None within a list, as the decoder does not tell the place."""
    try:
        found: Any = msgspec.json.decode(body)
        for name in path:
            if name is None:
                return None
            found = found[name]
        return quoted(found)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
        return None


def texts_of(request: PredictRequest, limits: Limits) -> list[str]:
    """Return the texts of a request that is within the limits."""
    if (request.texts is UNSET) == (request.text is UNSET):
        found = "neither" if request.texts is UNSET else "both"
        raise ProblemError(422, f'a request must have "texts" or "text", but has {found}', field="texts")
    check_k(request.k, limits)
    check_entries(request.allowed, "allowed", limits.labels)
    check_entries(request.forbidden, "forbidden", limits.labels)
    if request.texts is UNSET:
        assert request.text is not UNSET
        check_text(request.text, "text", limits)
        return [request.text]
    texts = request.texts
    check_entries(texts, "texts", limits.texts, "; send several requests")
    if len(max(texts, key=len)) > limits.text_length:
        for text in texts:
            check_text(text, "texts", limits)
    return texts


def read_new_labels(request: NewLabels, limits: Limits) -> list[NewLabel]:
    """Return the labels to add, which must be within the limits."""
    if (request.labels is UNSET) == (request.text is UNSET) or (
        request.labels is not UNSET and request.uid is not UNSET
    ):
        raise ProblemError(
            422,
            'a request must have "text" (and "uid") of one label, or "labels", but has not one of them',
            field="text",
        )
    if request.labels is UNSET:
        assert request.text is not UNSET
        labels = [NewLabel(request.text, None if request.uid is UNSET else request.uid)]
    else:
        labels = request.labels
        check_entries(labels, "labels", limits.labels)
    for label in labels:
        check_text(label.text, "text", limits)
        check_text(label.uid or "", "uid", limits)
        check_entries(label.texts, "texts", limits.labels)
        for entry in label.texts:
            check_text(entry if isinstance(entry, str) else entry.text, "texts", limits)
    return labels


def check_text(text: str, field: str, limits: Limits) -> None:
    """Refuse a text that is too long."""
    if len(text) > limits.text_length:
        what = "a text" if field == "texts" else field
        raise ProblemError(
            422,
            f"{what} must have at most {limits.text_length:,} characters, but has {len(text):,}; shorten it",
            field=field,
        )


def check_k(k: int, limits: Limits) -> None:
    """Refuse a k above the limit."""
    if k > limits.k:
        raise ProblemError(422, f"k must be at most {limits.k}, but is {k}", field="k")


def check_entries(entries: Sequence[Any] | None, field: str, maximum: int, remedy: str = "") -> None:
    """Refuse a list that is too long."""
    if entries is not None and len(entries) > maximum:
        found = f"{field} must have at most {maximum:,} entries, but has {len(entries):,}{remedy}"
        raise ProblemError(422, found, field=field)

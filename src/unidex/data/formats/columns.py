"""Which column of a table plays which role: guessed from the names, or given by the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from unidex.data.read_options import TextFields
from unidex.errors import DataError, listed, quoted

# Names that people give to columns, the likeliest first.
_NAMES: dict[str, tuple[str, ...]] = {
    "text": ("text", "query", "sentence", "question", "document", "utterance", "name"),
    "title": ("title", "headline"),
    "content": ("content", "abstract", "body", "description"),
    "labels": (
        *("labels", "label", "tags", "tag", "categories", "category", "subjects", "subject", "codes", "code"),
        *("targets", "target", "classes", "class", "topics", "topic", "keywords", "keyword"),
    ),
    "relevance": ("relevance", "target_rel", "weights"),
    "uid": ("uid", "id"),
}
# In a table of labels, "label" or "code" is the name of the label itself.
_LABEL_UIDS = ("uid", "uri", "id", "label", "code", "key")
_LABEL_TEXTS = ("text", "name", "label", "labels")
_TEXT_ROLES = ("text", "title", "content")
# A title that no column is called: what stands beside a content of any name, or, as in letters, beside a body alone.
_TITLES_BESIDE: dict[str, tuple[str, ...]] = {"": ("name",), "body": ("subject", "name")}
_HOW = "name them: --column text=NAME --column labels=NAME"


def looks_like_header(cells: Sequence[str]) -> bool:
    """Whether one of the cells is a name that columns have.

    >>> looks_like_header(["Text", "foo"]), looks_like_header(["sport news", "the match"])
    (True, False)
    """
    known = {name for names in _NAMES.values() for name in names}
    return any(_plain(cell) in known for cell in cells)


def text_columns(
    names: Sequence[str], given: Mapping[str, str], fields: TextFields, file: Path, *, labelled: bool = True
) -> dict[str, str]:
    """Role -> column for a table of texts: ``labels``, and ``text`` or ``title`` and ``content``.

    Args:
        names: the columns of the table.
        given: role -> column as the user gave it; an empty name says that there is no such column.
        fields: which of title and content make the text, where the table has both.
        file: the table, for messages.
        labelled: False for texts alone. The only column of such a table is the text, whatever its name.

    >>> text_columns(["ID", "Title", "Abstract", "tags"], {}, "title+content", Path("x.csv"))
    {'title': 'Title', 'content': 'Abstract', 'labels': 'tags', 'uid': 'ID'}
    >>> text_columns(["name", "description", "category"], {}, "title+content", Path("products.csv"))
    {'title': 'name', 'content': 'description', 'labels': 'category'}
    >>> text_columns(["text", "codes"], {"labels": "codes"}, "title+content", Path("x.csv"))
    {'text': 'text', 'labels': 'codes'}
    """
    check_given(names, given, file)
    columns = _text_of(names, given, _NAMES["text"], fields, file)
    if not labelled:
        columns = columns or ({"text": names[0]} if len(names) == 1 else {})
        if not columns:
            raise _nothing_fits(names, False, file, labelled=False)
        _check_distinct(names, columns, file)
        return columns
    labels = _find("labels", names, given, _NAMES["labels"], columns)
    if not columns or labels is None:
        raise _nothing_fits(names, bool(columns), file)
    columns["labels"] = labels
    for role in ("relevance", "uid"):
        name = _find(role, names, given, _NAMES[role], columns)
        if name is not None:
            columns[role] = name
    _check_distinct(names, columns, file)
    return columns


def label_columns(names: Sequence[str], given: Mapping[str, str], fields: TextFields, file: Path) -> dict[str, str]:
    """Role -> column for a table of labels: ``text`` or ``title`` and ``content``, and ``uid`` where it has one.

    Columns that the user gave for the texts count here where the table of labels has a column of that name.

    >>> label_columns(["code", "name"], {"text": "body"}, "title+content", Path("labels.csv"))
    {'text': 'name', 'uid': 'code'}
    >>> label_columns(["label"], {}, "title+content", Path("labels.csv"))
    {'text': 'label'}
    """
    given = {role: name for role, name in given.items() if name in names and role in (*_TEXT_ROLES, "uid")}
    uid = _find("uid", names, given, _LABEL_UIDS, {})
    others = [name for name in names if name != uid]
    columns = _text_of(others, given, _LABEL_TEXTS, fields, file)
    if not columns:
        # The only column that fits is both: a label's text is its uid.
        columns, uid = _text_of(names, given, _LABEL_TEXTS, fields, file), None
    if not columns:
        raise DataError(
            f"a table of labels must have a column text (and uid), but its columns are {_shown(names)}; rename them",
            file=file,
        )
    if uid is not None:
        columns["uid"] = uid
    _check_distinct(names, columns, file)
    return columns


def columns_of_training(names: Sequence[str], given: Mapping[str, str], trained: Mapping[str, str]) -> dict[str, str]:
    """The columns that the user gave, and of those of the training the ones that this table has.

    >>> columns_of_training(["body", "queue"], {}, {"text": "body", "labels": "tags"})
    {'text': 'body'}
    >>> columns_of_training(["body", "note"], {"text": "note"}, {"title": "subject", "content": "body"})
    {'text': 'note'}
    """
    has_text = any(role in given for role in _TEXT_ROLES)
    known = {role: name for role, name in trained.items() if name in names and not (has_text and role in _TEXT_ROLES)}
    return {**known, **given}


def missing_columns(names: Sequence[str], given: Mapping[str, str], trained: Mapping[str, str]) -> list[str]:
    """Text columns of the training that a table lacks though it has another one of them.

    >>> missing_columns(["subject"], {}, {"title": "subject", "content": "body", "labels": "queue"})
    ['body']
    """
    texts = [name for role, name in trained.items() if role in _TEXT_ROLES]
    absent = [name for name in texts if name not in names]
    return absent if len(absent) < len(texts) and not any(role in given for role in _TEXT_ROLES) else []


def text_columns_of(names: Sequence[str], given: Mapping[str, str], fields: TextFields, file: Path) -> dict[str, str]:
    """The columns of the texts of a table of labels; nothing where nothing fits."""
    return _text_of(names, given, _LABEL_TEXTS, fields, file)


def _text_of(
    names: Sequence[str], given: Mapping[str, str], plain: Sequence[str], fields: TextFields, file: Path
) -> dict[str, str]:
    """The column ``text``, or ``title`` and ``content`` as ``fields`` asks; nothing where nothing fits."""
    taken = {role: name for role, name in given.items() if role not in _TEXT_ROLES}
    if given.get("text"):
        return {"text": given["text"]}
    text = _find("text", names, given, plain[:1], taken)
    title = _find("title", names, given, _NAMES["title"], taken)
    content = _find("content", names, given, _NAMES["content"], taken)
    if title is None and content is not None and "title" not in given:
        beside = _TITLES_BESIDE.get(_plain(content), _TITLES_BESIDE[""])
        title = _find("title", names, given, beside, {**taken, "content": content})
    # A column called "text" is the text, unless the user speaks of titles and contents.
    if text is not None and not given.get("title") and not given.get("content") and fields == "title+content":
        return {"text": text}
    found = {"title": title, "content": content}
    wanted = fields.split("+")
    if fields != "title+content" and found[fields] is None:
        raise DataError(
            f"--text {fields} needs a column {fields}, but the columns are {_shown(names)}; "
            f"say which one it is (--column {fields}=NAME) or leave --text out",
            file=file,
        )
    columns = {role: name for role, name in found.items() if name is not None and role in wanted}
    if columns:
        # One part alone is a plain text.
        return columns if len(columns) == 2 else {"text": next(iter(columns.values()))}
    text = _find("text", names, given, plain, taken)
    return {} if text is None else {"text": text}


def _find(
    role: str, names: Sequence[str], given: Mapping[str, str], known: Sequence[str], taken: Mapping[str, str]
) -> str | None:
    if role in given:
        return given[role] or None
    free = [name for name in names if name not in taken.values()]
    for wanted in known:
        # The exact name goes before the same name in other letters.
        fits = [name for name in free if name == wanted] or [name for name in free if _plain(name) == wanted]
        if fits:
            return fits[0]
    return None


def _plain(name: str) -> str:
    return name.strip().lower()


def _shown(names: Sequence[str]) -> str:
    return listed(quoted(name) for name in names) if names else "none"


def check_given(names: Sequence[str], given: Mapping[str, str], file: Path) -> None:
    """Refuse a column that the user gave and the table does not have."""
    for role, name in given.items():
        if name and name not in names:
            raise DataError(
                f"--column {role}={name} needs a column {quoted(name)}, but the columns are {_shown(names)}", file=file
            )


def _check_distinct(names: Sequence[str], columns: Mapping[str, str], file: Path) -> None:
    for role, name in columns.items():
        if list(names).count(name) > 1:
            raise DataError(f"column names must differ, but {quoted(name)} comes twice; rename one", file=file, line=1)
        if list(columns.values()).count(name) > 1:
            raise DataError(
                f"every role must have a column of its own, but {quoted(name)} is {role} and another; {_HOW}", file=file
            )


def _nothing_fits(names: Sequence[str], has_text: bool, file: Path, *, labelled: bool = True) -> DataError:
    missing = "labels" if has_text else "text"
    header = ""
    if not looks_like_header(names):
        header = "the first line must name the columns (such as text and labels), or "
    how = _HOW if labelled else "name it: --column text=NAME"
    return DataError(f"no column looks like the {missing}; the columns are {_shown(names)}; {header}{how}", file=file)

"""``unidex explain``: why a text has its labels."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any

import typer

from unidex.cli.output import print_json, print_text
from unidex.cli.shared_options import Json, ModelFolder, ModeOption

# Minimum share of the strongest attribution for a mark, and for a strong mark.
_MARKED, _STRONG = 0.2, 0.5
_SIGNS = {2: "**", 1: "*", 0: "", -1: "~"}
_STYLES = {2: "bold bright_yellow", 1: "yellow", 0: "", -1: "dim red"}
_WHOLE_UP_TO = 400  # characters; a longer text is shortened
_AROUND = 40  # characters of a longer text shown around a marked word
_BAR = 40
_SHOWN = 0.00005  # numbers are shown with four decimals


def explain(
    model: ModelFolder,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="The text; - reads it from standard input.", show_default=False)
    ],
    k: Annotated[int, typer.Option("-k", min=1, help="Number of best labels to explain.")] = 5,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="UID", help="Explain this label instead, predicted or not. Repeatable."),
    ] = None,
    mode: ModeOption = None,
    texts: Annotated[int, typer.Option("--texts", min=0, help="Train texts to show per label.")] = 3,
    as_json: Json = False,
) -> None:
    """Explain why a text has its labels.

    For each label: the parts of its score (dual encoder, classifier, kNN, label prior), the attribution to words of the
    text, the nearest train texts that have the label, and which other predicted labels occur with it on train texts. If
    the output is not a terminal, **word** marks a high attribution, *word* a lower one, and ~word~ a negative one.

    With --json: {"text": ..., "labels": [{"id", "uid", "text", "score", "probability", "frequency", "parts", "tokens",
    "rest", "texts", "together"}, ...]}.

    Train texts are shown as snippets, if the model stores them (predict.snippet_length; 160 characters in auto).

    Example: unidex explain hpo-model "Marfan syndrome" -k 2
    """
    from unidex.model.explanation import explain
    from unidex.verbs.models import load_model

    if text == "-":
        text = sys.stdin.read().rstrip("\r\n")
    found = explain(load_model(model), text, k=k, labels=label or None, mode=mode, num_texts=texts)  # type: ignore[arg-type]
    rows = [reason.as_dict() for reason in found]
    if as_json:
        print_json({"text": text, "labels": rows})
        return
    # One scale for all bars makes labels comparable.
    longest = max((abs(part) for row in rows for part in row["parts"].values()), default=0.0)
    shown = _Page(longest, is_terminal=sys.stdout.isatty())
    for number, row in enumerate(rows, start=1):
        shown.label(number, row, text)


class _Page:
    """Explanations for a person: in colours on a terminal, with signs elsewhere."""

    def __init__(self, longest: float, *, is_terminal: bool) -> None:
        self._longest = longest or 1.0
        self._console: Any = None
        if is_terminal:
            from rich.console import Console

            self._console = Console(highlight=False)

    def label(self, number: int, row: dict[str, Any], text: str) -> None:
        chance = "" if row["probability"] is None else f", probability {row['probability']:.2f}"
        title = f"{number}. {_one_line(row['text'] or row['uid'])}"
        self._print([(title, "bold"), (f"  ({row['uid']}, {row['frequency']})  {row['score']:.4f}{chance}", "")])
        for name, value in row["parts"].items():
            length = round(_BAR * abs(value) / self._longest)
            bar = ("\u2588" if self._console else "#" if value >= 0 else "-") * length
            self._print([(f"   {name:<14}{value:8.4f}  ", ""), (bar, "green" if value >= 0 else "red")])
        pieces = marked_pieces(text, row["tokens"])
        if pieces:
            signs = dict.fromkeys(_SIGNS, "") if self._console else _SIGNS
            marked = [(f"{signs[mark]}{piece}{signs[mark]}", _STYLES[mark]) for piece, mark in pieces]
            self._print([("   text          ", ""), *marked])
        # A frozen encoder (features.pretrained), or biases and special tokens.
        if abs(row["rest"]) >= _SHOWN:
            self._print([(f"   {'no word':<14}{row['rest']:8.4f}", "")])
        for what, key, value in (("train text", "texts", "similarity"), ("occurs with", "together", "share")):
            for near in row[key]:
                self._print(
                    [(f"   {what:<14}{near[value]:8.4f}  {_one_line(near['text'] or near.get('uid', ''))}", "")]
                )

    def _print(self, pieces: list[tuple[str, str]]) -> None:
        if self._console is None:
            print_text("".join(piece for piece, _ in pieces).rstrip())
            return
        from rich.text import Text

        # Text: the data of a user is never read as markup.
        self._console.print(Text.assemble(*(Text(piece, style=style) for piece, style in pieces)))


def marked_pieces(text: str, tokens: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Split a text into pieces with marks: 2 for a high attribution, 1 for a lower one, 0 for none, -1 for a negative.

    A long text is shortened to the marked words and their surroundings.

    >>> words = [{"start": 0, "end": 3, "score": 0.9}, {"start": 4, "end": 7, "score": 0.3}]
    >>> marked_pieces("red hat off", words)
    [('red', 2), (' ', 0), ('hat', 1), (' off', 0)]
    """
    strongest = max((abs(token["score"]) for token in tokens), default=0.0)
    marks = [(token["start"], token["end"], _mark(token["score"], strongest)) for token in tokens]
    marks = [mark for mark in marks if mark[2] != 0]
    whole = len(text) <= _WHOLE_UP_TO
    pieces: list[tuple[str, int]] = []
    at = 0
    for start, end, mark in marks:
        pieces += [(_between(text[at:start], whole, is_first=at == 0), 0), (text[start:end], mark)]
        at = end
    pieces.append((text[at:] if whole or len(text) - at <= _AROUND else _beginning(text[at:]) + " ...", 0))
    return [(re.sub(r"\s+", " ", piece), mark) for piece, mark in pieces if piece]


def _between(piece: str, whole: bool, *, is_first: bool) -> str:
    if whole or len(piece) <= 2 * _AROUND:
        return piece
    end = piece[-_AROUND:]
    return ("" if is_first else _beginning(piece)) + " ... " + (end.partition(" ")[2] or end)


def _beginning(piece: str) -> str:
    cut = piece[:_AROUND]
    return cut.rpartition(" ")[0] or cut


def _mark(score: float, strongest: float) -> int:
    share = score / strongest if strongest > 0 else 0.0
    if share <= -_MARKED:
        return -1
    return 2 if share >= _STRONG else 1 if share >= _MARKED else 0


def _one_line(text: str) -> str:
    return " ".join(text.split())

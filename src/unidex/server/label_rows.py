"""Labels as they stand in answers: rows of lists, and for predictions JSON that is made once a label."""

from __future__ import annotations

import msgspec

from unidex.model.label_set import LabelSet
from unidex.server.schemas import LabelRow, NearRow

_encode = msgspec.json.Encoder().encode


def label_row(labels: LabelSet, label: int) -> LabelRow:
    """A label as it is listed."""
    return LabelRow(
        label,
        labels.uids[label],
        labels.texts[label],
        labels.frequency_class(label),  # type: ignore[arg-type]
        int(labels.frequencies[label]),
    )


def near_row(labels: LabelSet, label: int, score: float) -> NearRow:
    """A label near another."""
    row = label_row(labels, label)
    return NearRow(row.id, row.uid, row.text, row.frequency, row.num_texts, round(score, 6))


class EncodedLabels:
    """Predicted labels as JSON: all but score and probability is made once a label, and anew when its text changes."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, str, str]] = {}  # label -> its text, what stands before and after the numbers

    def predicted(
        self, labels: LabelSet, ids: list[int], scores: list[float], probabilities: list[float] | None, least: float
    ) -> str:
        """The prediction of one text.

        Args:
            labels: the model's.
            ids: the labels, best first; -1 where there are no more.
            scores: their scores, of no more digits than are to be shown.
            probabilities: theirs, or None where the model is not calibrated.
            least: the least probability.
        """
        found = []
        known, texts = self._known, labels.texts
        for place, label in enumerate(ids):
            if label < 0:
                break
            if probabilities is not None and probabilities[place] < least:
                continue
            entry = known.get(label)
            if entry is None or entry[0] is not texts[label]:
                entry = known[label] = self._entry(labels, label)
            shown = "null" if probabilities is None else probabilities[place]
            found.append(f'{entry[1]}{scores[place]},"probability":{shown}{entry[2]}')
        return f'{{"labels":[{",".join(found)}]}}'

    @staticmethod
    def _entry(labels: LabelSet, label: int) -> tuple[str, str, str]:
        text = labels.texts[label]
        uid_json, text_json = _encode(labels.uids[label]).decode(), _encode(text).decode()
        before = f'{{"id":{label},"uid":{uid_json},"text":{text_json},"score":'
        return text, before, f',"frequency":"{labels.frequency_class(label)}"}}'

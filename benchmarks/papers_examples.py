"""Tables and figures of the thesis that describe or show data: sizes of sets, label graphs, predictions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy import sparse

from papers_rows import CPU, GANDALF
from papers_runs import DataSet, in_child
from unidex.augment.cooccurrence import soft_targets
from unidex.verbs.train import train

EXAMPLES = {
    "thesis-1.1": "Sizes of the data sets (tables 1.1 and 2.1)",
    "thesis-1.5": "Predictions for some test texts, with and without Gandalf (seed 0)",
    "thesis-fig-1.2": "Labels and their neighbours in the graph of co-occurrence",
}
_SYSTEMS = ("decaf",)
_NUM_SHOWN, _NUM_NEIGHBOURS, _DELTA, _MAX_WORDS = 4, 4, 0.1, 1


def sizes(source: DataSet) -> str:
    """Texts, labels, and how many of each the other has."""
    data = source.data
    pairs, texts = data.train.positives, data.train.texts
    words = float(np.mean([len(str(text).split()) for text in texts]))
    return (
        "| set | train texts | labels | texts per label | labels per text | words per text |\n"
        "|---|---:|---:|---:|---:|---:|\n"
        f"| {source.name} | {len(texts):,} | {data.num_labels:,} | {pairs.nnz / data.num_labels:.2f} | "
        f"{pairs.nnz / len(texts):.2f} | {words:.2f} |\n"
    )


def neighbours(source: DataSet) -> str:
    """Labels evenly spread over those with enough neighbours, and the target that Gandalf gives each neighbour."""
    data = source.data
    graph = soft_targets(data.train.positives, delta=_DELTA, max_targets=_NUM_NEIGHBOURS + 1)
    frequent = np.bincount(data.train.positives.indices, minlength=data.num_labels) >= 5
    fit = np.flatnonzero(frequent & (np.diff(graph.indptr) > _NUM_NEIGHBOURS))
    lines = ["| label | neighbours, with the share of its texts that have them too |", "|---|---|"]
    for label in fit[:: max(1, len(fit) // _NUM_SHOWN)][:_NUM_SHOWN]:
        row = graph[[label]]
        order = [place for place in np.argsort(-row.data, kind="stable") if row.indices[place] != label]
        shown = [f"{_code(data.labels.texts[row.indices[place]])} {row.data[place]:.2f}" for place in order]
        lines.append(f"| {_code(data.labels.texts[label])} | {', '.join(shown)} |")
    return "\n".join(lines) + "\n"


def predictions(source: DataSet) -> str:
    """The first test texts of one word with several labels, and the best labels by each system; right ones bold."""
    test, labels = source.data.test, source.data.labels.texts
    several = np.diff(test.positives.indptr) >= _NUM_SHOWN
    rows = [row for row in np.flatnonzero(several) if len(str(test.texts[row]).split()) <= _MAX_WORDS][:_NUM_SHOWN]
    lines = ["| text | system | without Gandalf | with Gandalf |", "|---|---|---|---|"]
    found = {
        name: [in_child(partial(_best, source, name, added, rows)) for added in ((), (GANDALF,))] for name in _SYSTEMS
    }
    for place, row in enumerate(rows):
        right = {*test.positives[[row]].indices.tolist()}
        for name, pair in found.items():
            cells = [", ".join(_shown(labels[one], one in right) for one in best["ids"][place]) for best in pair]
            lines.append(f"| {_code(test.texts[row])} | {name} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines) + "\n"


def _best(source: DataSet, recipe: str, added: tuple[str, ...], rows: list[int]) -> dict[str, list[list[int]]]:
    model = train(source.data, recipe, settings=[*CPU[recipe], *added], seed=0)
    test = source.data.test
    filtered = sparse.csr_array(test.filter_pairs)
    ids = model.topk([str(test.texts[row]) for row in rows], 10).ids
    return {
        "ids": [
            [int(i) for i in best if i not in filtered[[row]].indices][:5] for row, best in zip(rows, ids, strict=True)
        ]
    }


def _shown(text: str, is_right: bool) -> str:
    return f"**{_code(text)}**" if is_right else _code(text)


def _code(text: object) -> str:
    """A text as code in a cell of a table: nothing in it is markup."""
    return "`" + str(text).replace("`", "").replace("|", "/") + "`"


MAKE: dict[str, Callable[[DataSet], str]] = {
    "thesis-1.1": sizes,
    "thesis-1.5": predictions,
    "thesis-fig-1.2": neighbours,
}

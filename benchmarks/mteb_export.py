"""An exported model in MTEB: a retrieval task over local data, whose texts are queries and whose labels are documents.

    unidex train hpo --recipe static --out M
    unidex export M --to sentence-transformers --out E
    python benchmarks/mteb_export.py E hpo --model M

It prints what MTEB measures of the exported folder and, with --model, what unidex measures of the model's own dual
encoder on the same texts, without filter pairs: P@1 and nDCG@5 must agree. The package mteb must be installed.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import mteb
import numpy as np
from datasets import Dataset as Rows
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from sentence_transformers import SentenceTransformer

import unidex
from unidex.data.dataset import Dataset, Split


def task_of(data: Dataset) -> AbsTaskRetrieval:
    """The test texts of a data set as a retrieval task of MTEB."""

    class LabelRetrieval(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name="UnidexLabels",
            description="Find the labels of a text by the texts of the labels.",
            dataset={"path": data.name, "revision": "local"},
            type="Retrieval",
            category="t2t",
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="ndcg_at_10",
        )

        def load_data(self, *_: object, **__: object) -> None:
            if self.data_loaded:
                return
            positives = data.test.positives
            has_labels = np.flatnonzero(np.diff(positives.indptr) > 0).tolist()
            texts = data.test.texts
            self.dataset = {
                "default": {
                    "test": {
                        "corpus": Rows.from_list(
                            [
                                {"id": f"d{label}", "title": "", "text": text}
                                for label, text in enumerate(data.labels.texts)
                            ]
                        ),
                        "queries": Rows.from_list([{"id": f"q{row}", "text": texts[row]} for row in has_labels]),
                        "relevant_docs": {
                            f"q{row}": {
                                f"d{label}": 1
                                for label in positives.indices[
                                    positives.indptr[row] : positives.indptr[row + 1]
                                ].tolist()
                            }
                            for row in has_labels
                        },
                        "top_ranked": None,
                    }
                }
            }
            self.data_loaded = True

    return LabelRetrieval()


def scores_of_mteb(export: str, data: Dataset) -> dict[str, float]:
    """What MTEB measures of an exported folder."""
    encoder = SentenceTransformer(export, device="cpu")
    result = mteb.evaluate(encoder, task_of(data), cache=None, show_progress_bar=False)
    scores = result.task_results[0].scores["test"][0]
    return {name: scores[name] for name in ("precision_at_1", "ndcg_at_5", "recall_at_10")}


def scores_of_unidex(model: unidex.Model, data: Dataset) -> dict[str, float]:
    """What unidex measures of the model's dual encoder.

    Filter pairs, which unidex leaves out of a text's results, have no place in a task of MTEB.
    """
    plain = replace(data, test=Split.of(data.test.texts, data.test.positives))
    found = model.evaluate(plain, mode="dual").metrics
    return {name: found[name] / 100 for name in ("P@1", "nDCG@5")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export", help="a folder of unidex export --to sentence-transformers")
    parser.add_argument("data", help="a data set with test texts")
    parser.add_argument("--model", help="the model folder, to compare")
    arguments = parser.parse_args()
    data = unidex.read(arguments.data)
    print(json.dumps({"mteb": scores_of_mteb(arguments.export, data)}))
    if arguments.model:
        print(json.dumps({"unidex": scores_of_unidex(unidex.Model.load(arguments.model), data)}))


if __name__ == "__main__":
    main()

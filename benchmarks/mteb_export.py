"""An exported model in MTEB: a retrieval task over local data, whose texts are queries and whose labels are documents.

    unidex train hpo --recipe static --out M
    unidex export M --to sentence-transformers --out E
    python benchmarks/mteb_export.py E hpo --model M

It prints what MTEB measures of the exported folder and, with --model, what unidex measures of the model's own dual
encoder on the same texts: P@1 and nDCG@5 must agree. The package mteb must be installed.
"""

from __future__ import annotations

import argparse
import json

import mteb
import numpy as np
from datasets import Dataset as Rows
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from sentence_transformers import SentenceTransformer

import unidex
from unidex.data.dataset import Dataset


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export", help="a folder of unidex export --to sentence-transformers")
    parser.add_argument("data", help="a data set with test texts")
    parser.add_argument("--model", help="the model folder, to compare")
    arguments = parser.parse_args()
    data = unidex.read(arguments.data)
    result = mteb.evaluate(
        SentenceTransformer(arguments.export, device="cpu"), task_of(data), cache=None, show_progress_bar=False
    )
    scores = result.task_results[0].scores["test"][0]
    print(json.dumps({"mteb": {name: scores[name] for name in ("precision_at_1", "ndcg_at_5", "recall_at_10")}}))
    if arguments.model:
        found = unidex.Model.load(arguments.model).evaluate(data, mode="dual").metrics
        print(json.dumps({"unidex": {name: found[name] / 100 for name in ("P@1", "nDCG@5")}}))


if __name__ == "__main__":
    main()

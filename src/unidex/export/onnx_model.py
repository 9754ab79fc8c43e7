"""``onnx``: encoder, heads and the search of all labels as one graph, or the encoder with its heads alone.

The graph computes ``query``, the query of a text as `unidex.scoring.layout` lays it out, and from it and the label rows
``scores`` and ``labels``, the k best: the weighted sum of dual encoder, classifier and label prior. The kNN part and
the ranker are not in it.

Shapes: N texts, L labels, D columns.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from unidex.errors import ModelError
from unidex.export.label_table import check_inner_products, exported_mode, label_blocks, missing_parts
from unidex.export.registry import ExportFormat, ExportOptions, Written
from unidex.model.model import Model
from unidex.nn.encoder_protocol import HasOnnxGraph
from unidex.nn.onnx_graph import FILE, OnnxGraph
from unidex.scoring.layout import HEADS, Head, Mode

LABELS = "labels.jsonl"


def _write(model: Model, folder: Path, options: ExportOptions) -> Written:
    graph = OnnxGraph()
    check_inner_products(model)
    mode = exported_mode(model, options)
    query = _query(model, graph, mode, folder)
    outputs: dict[str, type[np.generic]] = {query: np.float32}
    num_labels = 0
    if not options.encoder_only:
        num_labels = _search(model, graph, mode, query, folder)
        outputs |= {"scores": np.float32, "labels": np.int64}
    graph.save(folder, outputs)
    facts = {
        "mode": mode,
        "inputs": graph.inputs,
        "outputs": list(outputs),
        "num_labels": num_labels,
        "dim": model.scorer.index.dim if mode == "both" else getattr(model.scorer.layout, mode),
    }
    return Written(facts, missing_parts(model, mode))


def _query(model: Model, graph: OnnxGraph, mode: Mode, folder: Path) -> str:
    """The query of a text: the vectors of the heads side by side, then 1 for the label prior."""
    network, layout = model.network, model.scorer.layout
    vectors: dict[bool, str] = {}

    def of_head(head: Head) -> str:
        is_own = head == "classifier" and network.classifier_encoder is not None
        encoder = network.classifier_encoder if is_own else network.encoder
        if not isinstance(encoder, HasOnnxGraph):
            raise ModelError(
                f"--to onnx is for bags and transformers, but the encoder is {model.config.encoder.kind}; use "
                "--to parquet"
            )
        if is_own not in vectors:
            vectors[is_own] = encoder.onnx_vectors(graph, folder)
        found = network.dual if head == "dual" else network.classifier
        assert found is not None
        return graph.modules(vectors[is_own], found.sentence_modules())

    heads = layout.heads if mode == "both" else (mode,)
    parts = [of_head(head) for head in HEADS if head in heads]
    if mode == "both" and "prior" in layout.column_names():
        # As many ones as texts: the first column of a part, without its numbers.
        first = graph.node("ReduceSum", parts[0], graph.constant(np.array([1])), keepdims=1)
        zeros = graph.node("Mul", first, graph.constant(np.zeros(1, dtype=np.float32)))
        parts.append(graph.node("Add", zeros, graph.constant(np.ones(1, dtype=np.float32))))
    return graph.node("Concat", *parts, axis=1, name="query")


def _search(model: Model, graph: OnnxGraph, mode: Mode, query: str, folder: Path) -> int:
    """The k best labels of a query; a label's number is its line in labels.jsonl."""
    blocks = []
    with (folder / LABELS).open("w", encoding="utf-8") as file:
        for block in label_blocks(model, mode):
            blocks.append(block.vectors_LD)
            rows = zip(block.uids, block.texts, strict=True)
            file.writelines(json.dumps({"uid": uid, "text": text}, ensure_ascii=False) + "\n" for uid, text in rows)
    rows_LD = np.concatenate(blocks)
    scores = graph.node("MatMul", query, graph.constant(rows_LD.T))
    graph.nodes("TopK", scores, graph.input("k", np.int64, [1]), names=["scores", "labels"], axis=1)
    return len(rows_LD)


FORMAT = ExportFormat(_write, frozenset({"mode", "encoder_only"}))
__all__ = ["FILE", "FORMAT", "LABELS"]

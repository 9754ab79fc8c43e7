"""``sentence-transformers``: one head of a model as a folder of that library's own modules.

The vector of a text is the head's: of the dual encoder, which makes label vectors from label texts with the same model,
or of the classifier, whose label vectors are in ``--to parquet --mode classifier``.

Shapes: N texts, D dimensions.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from unidex.errors import ModelError
from unidex.export.hub import push
from unidex.export.label_table import exported_mode
from unidex.export.model_card import model_card
from unidex.export.registry import ExportFormat, ExportOptions, Written
from unidex.model.model import Model
from unidex.nn.encoder_protocol import HasSentenceModules
from unidex.nn.sentence_modules import STATIC, Normalize, static_vectors
from unidex.scoring.layout import Mode

# Label texts whose vectors are compared with the model's own.
_CHECKED = 512
_MAX_DIFFERENCE = 1e-3
_USE = """from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{folder}")
vectors = model.encode(["a text", "another"])
"""


def _write(model: Model, folder: Path, options: ExportOptions) -> Written:
    network, layout = model.network, model.scorer.layout
    mode = exported_mode(model, options) if options.mode else layout.heads[0]
    if mode == "both":
        raise ModelError(
            "a sentence-transformers folder holds one head, but --mode is both; take --mode dual or --mode classifier"
        )
    is_own = mode == "classifier" and network.classifier_encoder is not None
    encoder = network.classifier_encoder if is_own else network.encoder
    head = network.dual if mode == "dual" else network.classifier
    assert head is not None
    if not isinstance(encoder, HasSentenceModules):
        raise ModelError(
            f"--to sentence-transformers is for bags and transformers, but the encoder is {model.config.encoder.kind}; "
            "use --to parquet"
        )
    modules = head.sentence_modules()
    lost = encoder.write_sentence_modules(folder, modules, "cosine" if _is_unit(modules) else "dot")
    if lost and not options.approximate:
        raise ModelError(
            "a bag exports exactly where its features are subword tokens counted as often as they occur, but this one "
            f"also has {', '.join(lost)}; train with --recipe static, or accept their loss with --approximate"
        )
    notes = _checked(model, mode, folder, lost) if (folder / STATIC).is_dir() else []
    if len(layout.heads) > 1 or model.scorer.ranker().features != (mode,):
        notes.append(
            f"The folder holds the {mode} head alone; unidex predict ranks with more (docs/concepts/scores.md)."
        )
    card = model_card(
        model,
        "sentence-transformers",
        "sentence-similarity",
        ["feature-extraction"],
        _USE.format(folder=options.push_to or "DIR"),
        notes,
    )
    (folder / "README.md").write_text(card, encoding="utf-8")
    return Written({"mode": mode, "dim": head.dim, "exact": not lost}, notes)


def _is_unit(modules: list[torch.nn.Module]) -> bool:
    return bool(modules) and isinstance(modules[-1], Normalize)


def _checked(model: Model, mode: Mode, folder: Path, lost: list[str]) -> list[str]:
    """Compare the vectors of label texts with the model's own: equal, or a note on how near they are."""
    texts = [text for text, gone in zip(model.labels.texts, model.labels.removed, strict=True) if text and not gone]
    texts = texts[:: max(1, len(texts) // _CHECKED)][:_CHECKED]
    wanted = getattr(model.vectors(texts), mode)
    found = static_vectors(folder, texts).numpy()
    if not lost:
        difference = float(np.abs(found - wanted).max(initial=0))
        if difference > _MAX_DIFFERENCE:
            raise RuntimeError(f"exported vectors of label texts differ from the model's by {difference:.2g}")
        return []
    cosines = _cosines(found, wanted)
    return [
        f"Approximate, without {', '.join(lost)}. Cosine of exported and own vectors of {len(texts)} label texts: "
        f"mean {cosines.mean():.3f}, lowest tenth {np.quantile(cosines, 0.1):.3f}."
    ]


def _cosines(left_ND: NDArray[np.float32], right_ND: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(left_ND, axis=1) * np.linalg.norm(right_ND, axis=1)
    found: NDArray[np.float32] = (left_ND * right_ND).sum(axis=1) / np.maximum(lengths, 1e-12)
    return found


FORMAT = ExportFormat(_write, frozenset({"mode", "approximate", "push_to"}), push)

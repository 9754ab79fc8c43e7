"""``huggingface``: the model folder itself with a model card that the Hugging Face hub reads."""

from __future__ import annotations

from pathlib import Path

from unidex.export.hub import push
from unidex.export.model_card import model_card
from unidex.export.registry import ExportFormat, ExportOptions, Written
from unidex.model.model import Model

_USE = """import unidex
from huggingface_hub import snapshot_download

model = unidex.Model.load(snapshot_download("{folder}"))
model.predict(["a text"], k=5)
"""


def _write(model: Model, folder: Path, options: ExportOptions) -> Written:
    # Saved beside and moved: saving replaces its folder, but this one is being written.
    model.save(folder / "model")
    for file in (folder / "model").iterdir():
        file.rename(folder / file.name)
    (folder / "model").rmdir()
    card = model_card(
        model,
        "unidex",
        "text-classification",
        ["multi-label-classification"],
        _USE.format(folder=options.push_to or "OWNER/NAME"),
        [],
    )
    (folder / "README.md").write_text(card, encoding="utf-8")
    return Written({"num_labels": int((~model.labels.removed).sum())})


FORMAT = ExportFormat(_write, frozenset({"push_to"}), push)

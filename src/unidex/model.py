"""The trained model: encode, predict, add and remove labels, save, load."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from unidex import index as indexes
from unidex.building import build_network, load_encoder
from unidex.config import Config, parse, read_toml
from unidex.data.texts import Texts
from unidex.errors import DataError, ModelError, listed, quoted
from unidex.network import Network, Vectors
from unidex.topk import TopK

FORMAT = 1
Mode = Literal["both", "dual", "classifier"]
# A new label has no classifier of its own: it takes the mean of those of so many labels whose texts are nearest.
_NEIGHBOURS = 5
_BLOCK = 1024
# Row tables that are saved with the encoder's dense weights.
_ENCODER_TABLES = ("features", "classifier_features")


@dataclass(frozen=True, eq=False)
class LabelSet:
    """The labels of a model by id.

    Attributes:
        texts: their texts.
        uids: the user's own names.
        frequencies: number of train texts of each; 0 for one that was added.
        removed: which are not predicted any more.
    """

    texts: list[str]
    uids: list[str]
    frequencies: NDArray[np.int64]
    removed: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.texts)


class Model:
    """A network, its labels and the index over them."""

    def __init__(
        self, config: Config, network: Network, labels: LabelSet, index: indexes.Index, metrics: dict[str, Any]
    ) -> None:
        self.config, self.network, self.labels, self.index, self.metrics = config, network, labels, index, metrics
        self.log = ""  # train.jsonl: what training has said, a JSON object a line
        self.network.eval()

    @classmethod
    def build(
        cls,
        config: Config,
        network: Network,
        labels: LabelSet,
        prepared_labels: Any,
        metrics: dict[str, Any] | None = None,
    ) -> Model:
        """A model from a trained network."""
        network.eval()
        vectors = network.label_vectors(prepared_labels).joined(config.predict.fusion)
        index = indexes.build(config.predict.index, vectors.cpu().numpy())
        return cls(config, network, labels, index, metrics or {})

    def encode(self, texts: Sequence[str], mode: Mode | None = None) -> NDArray[np.float32]:
        """The vectors of texts as they are searched: dual and classifier side by side, 0 for a head left out."""
        mode = mode or self.config.predict.mode
        if isinstance(texts, str):
            raise DataError("texts must be a list of texts, but is one text; write [text]")
        vectors = self.network.text_vectors(self.network.encoder.prepare(texts))
        if mode != "both" and getattr(vectors, mode) is None:
            raise DataError(f"mode must be one of the model's heads, but it was trained without {quoted(mode)}")
        if mode != "both":
            other = "classifier" if mode == "dual" else "dual"
            rest = getattr(vectors, other)
            vectors = replace(vectors, **{other: None if rest is None else torch.zeros_like(rest)})
        joined: NDArray[np.float32] = vectors.joined().cpu().numpy()
        return joined

    def predict(
        self,
        texts: Sequence[str],
        k: int = 5,
        *,
        mode: Mode | None = None,
        allowed: ArrayLike | None = None,
        forbidden: ArrayLike | None = None,
    ) -> TopK:
        """The k best labels of each text."""
        if k < 1:
            raise DataError(f"k must be at least 1, but is {k}")
        parts = [
            self.index.search(self.encode(texts[start : start + _BLOCK], mode), k, allowed=allowed, forbidden=forbidden)
            for start in range(0, len(texts), _BLOCK)
        ]
        if not parts:
            return TopK(np.empty((0, k), dtype=np.int64), np.empty((0, k), dtype=np.float32))
        return TopK(np.concatenate([part.ids for part in parts]), np.concatenate([part.scores for part in parts]))

    def add_labels(self, texts: Sequence[str], uids: Sequence[str] | None = None) -> NDArray[np.int64]:
        """Add labels without training; the result is their ids.

        The dual encoder knows a label by its text. Its classifier begins as the mean of those of the labels whose texts
        are nearest, so that both heads can score it.
        """
        texts = list(texts)
        new_uids = list(texts if uids is None else uids)
        if len(new_uids) != len(texts):
            raise DataError(
                f"there must be one uid a label, but there are {len(texts)} labels and {len(new_uids)} uids"
            )
        known = set(self.labels.uids)
        again = [uid for number, uid in enumerate(new_uids) if uid in known or uid in new_uids[:number]]
        if again:
            raise DataError(f"uids of labels must differ, but there is already {listed(again)}")
        if self.network.dual is None:
            raise ModelError(
                "labels can only be added to a model with a dual encoder, but this one has a classifier alone"
            )
        if not texts:
            return np.empty(0, dtype=np.int64)
        prepared = self.network.encoder.prepare(texts)
        dual = self.network.text_vectors(prepared).dual
        assert dual is not None
        classifier = None
        if self.network.classifiers is not None and self.network.classifier is not None:
            rows = self._classifiers_near(texts)
            self.network.classifiers.grow(rows)
            classifier = self.network.classifier.as_searched(rows)
        ids = self.index.add(Vectors(dual, classifier).joined(self.config.predict.fusion).cpu().numpy())
        count = len(texts)
        self.labels = LabelSet(
            self.labels.texts + texts,
            self.labels.uids + new_uids,
            np.concatenate([self.labels.frequencies, np.zeros(count, dtype=np.int64)]),
            np.concatenate([self.labels.removed, np.zeros(count, dtype=bool)]),
        )
        return ids

    def _classifiers_near(self, texts: Sequence[str]) -> Tensor:
        assert self.network.classifiers is not None
        near = self.index.search(self.encode(texts, "dual"), _NEIGHBOURS).ids
        found = torch.from_numpy(np.where(near < 0, near[:, :1], near)).to(self.network.device)
        unit = nn.functional.normalize(self.network.classifiers.weight[found], dim=2)
        return unit.mean(dim=1)

    def remove_labels(self, ids: Sequence[int]) -> None:
        """Never predict these labels again. The ids of the others do not change."""
        chosen = np.unique(np.asarray(ids, dtype=np.int64))
        wrong = [int(label) for label in chosen if not 0 <= label < len(self.labels) or self.labels.removed[label]]
        if wrong:
            raise DataError(f"labels to remove must be among the model's, but it does not have {listed(wrong)}")
        self.index.remove(chosen)
        removed = self.labels.removed.copy()
        removed[chosen] = True
        self.labels = replace(self.labels, removed=removed)

    def save(self, folder: str | Path) -> None:
        """Write the model folder: complete, or not at all."""
        folder = Path(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            self._write(unfinished)
            unfinished.chmod(0o755)
            before = folder.with_name(f".{folder.name}-before")
            shutil.rmtree(before, ignore_errors=True)
            if folder.exists():
                folder.rename(before)
            unfinished.rename(folder)
            shutil.rmtree(before, ignore_errors=True)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise

    def _write(self, folder: Path) -> None:
        (folder / "config.toml").write_text(self.config.as_toml(), encoding="utf-8")
        tables = self.network.tables()
        dense = {name: tensor.contiguous() for name, tensor in self.network.state_dict().items()}
        dense |= {name: tables[name].weight.contiguous() for name in _ENCODER_TABLES if name in tables}
        save_file(dense, folder / "encoder.safetensors")
        if "classifiers" in tables:
            save_file({"classifiers": tables["classifiers"].weight.contiguous()}, folder / "classifier.safetensors")
        (folder / "encoder").mkdir()
        self.network.encoder.save(folder / "encoder")
        _write_labels(folder / "labels.jsonl", self.labels)
        self.index.save(folder / "index")
        (folder / "metrics.json").write_text(json.dumps(self.metrics, indent=2) + "\n", encoding="utf-8")
        (folder / "train.jsonl").write_text(self.log, encoding="utf-8")
        (folder / "MODEL_CARD.md").write_text(_card(self), encoding="utf-8")
        manifest = {"format": FORMAT, "files": _hashes(folder)}
        (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> Model:
        """Read a model folder; every file is checked against the manifest first."""
        folder = Path(folder)
        before = folder.with_name(f".{folder.name}-before")
        if not folder.exists() and before.exists():
            # A crash between the two renames of save: the old model is whole.
            before.rename(folder)
        _check_manifest(folder)
        config = parse(read_toml(folder / "config.toml"), where=str(folder / "config.toml"))
        try:
            dense = load_file(folder / "encoder.safetensors", device=device)
            classifier_file = folder / "classifier.safetensors"
            rows = load_file(classifier_file, device=device) if classifier_file.exists() else {}
            metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
            log = (folder / "train.jsonl").read_text(encoding="utf-8")
        except (OSError, ValueError, SafetensorError) as error:
            raise ModelError(f"{folder}: the model cannot be read ({error}); copy it again") from None
        labels = _read_labels(folder / "labels.jsonl")
        encoder = load_encoder(config, folder / "encoder")
        # One label: the table is replaced at once by the saved one.
        network = build_network(config, encoder, 1, device)
        tables = network.tables()
        for name in _ENCODER_TABLES:
            if name in tables:
                tables[name].weight = dense.pop(name)
        if network.classifiers is not None:
            network.classifiers.weight = rows["classifiers"]
        network.load_state_dict(dense)
        model = cls(config, network, labels, indexes.load(folder / "index"), metrics)
        model.log = log
        return model


class _LabelRow(msgspec.Struct):
    """One line of labels.jsonl."""

    uid: str
    text: str
    frequency: int = 0
    removed: bool = False


def _write_labels(file: Path, labels: LabelSet) -> None:
    encode = msgspec.json.Encoder().encode
    rows = zip(labels.uids, labels.texts, labels.frequencies.tolist(), labels.removed.tolist(), strict=True)
    with file.open("wb") as out:
        out.writelines(encode(_LabelRow(*row)) + b"\n" for row in rows)


def _read_labels(file: Path) -> LabelSet:
    try:
        rows = msgspec.json.Decoder(_LabelRow).decode_lines(file.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{file}: the labels cannot be read ({error}); copy the model again") from None
    return LabelSet(
        [row.text for row in rows],
        [row.uid for row in rows],
        np.array([row.frequency for row in rows], dtype=np.int64),
        np.array([row.removed for row in rows], dtype=bool),
    )


def label_set(texts: Texts, uids: Texts | None, frequencies: NDArray[np.int64]) -> LabelSet:
    """The labels of a data set as those of a model; a label without a uid is named by its number."""
    names = [str(number) for number in range(len(texts))] if uids is None else list(uids)
    return LabelSet(list(texts), names, frequencies, np.zeros(len(texts), dtype=bool))


def _hashes(folder: Path) -> dict[str, str]:
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != "manifest.json")
    files += sorted(folder.glob("*/manifest.json"))
    return {str(file.relative_to(folder)): _hash(file) for file in files}


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _check_manifest(folder: Path) -> None:
    file = folder / "manifest.json"
    if not file.is_file():
        raise ModelError(f"{folder}: a model folder must hold manifest.json, but this does not; is it a model?")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        expected, found_format = dict(manifest["files"]), manifest["format"]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise ModelError(f"{file}: the manifest cannot be read ({error}); copy the model again") from None
    if found_format != FORMAT:
        raise ModelError(
            f"{file}: the model must have format {FORMAT}, but has {found_format}; train or convert it anew"
        )
    found = _hashes(folder)
    for name, wanted in sorted(expected.items()):
        if found.get(name) != wanted:
            what = "changed" if name in found else "is missing"
            raise ModelError(f"{folder / name}: the file {what} since the model was saved; copy the model again")


def _card(model: Model) -> str:
    config = model.config
    removed = int(model.labels.removed.sum())
    scores = model.metrics.get("test") or model.metrics.get("validation") or {}
    rows = [f"| {name} | {value:.2f} |" for name, value in scores.items() if isinstance(value, float)]
    table = "\n".join(["| metric | percent |", "|---|---:|", *rows]) if rows else "Not evaluated."
    return (
        f"# A unidex model\n\n"
        f"- recipe: {config.recipe or 'own'}. {config.about}\n"
        f"- data: {model.metrics.get('data', {}).get('name', 'not named')}, "
        f"{model.metrics.get('data', {}).get('num_train', 0):,} train texts\n"
        f"- labels: {len(model.labels) - removed:,}" + (f" ({removed:,} removed)" if removed else "") + "\n"
        f"- encoder: {config.encoder.kind}; heads: "
        + ", ".join(name for name in ("dual", "classifier") if getattr(config.heads, name))
        + f"; index: {config.predict.index}\n\n## Scores on test\n\n{table}\n"
    )

"""The model folder: written whole or not at all, and checked before it is read.

``config.toml``, ``encoder.safetensors``, ``encoder/``, ``labels.jsonl`` or ``labels/``, ``index/`` (classifiers too),
``neighbours/`` (the kNN part), ``lexical/``, ``pretrained/``, ``linear/``, ``links/``, ``calibration.json``,
``ranker.json``, ``metrics.json``, ``train.jsonl``, ``train_texts.numbers``, ``MODEL_CARD.md`` and ``manifest.json``,
which has a hash of every file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from unidex import index as indexes
from unidex.config import Config
from unidex.config.recipes import read_saved
from unidex.config.renamed import OLD_NAMES
from unidex.data.text_hashes import TextHashes
from unidex.encoders.registry import array_reader, load_encoder, saves_weights
from unidex.errors import ModelError
from unidex.features.pretrained_columns import columns_of
from unidex.model.label_set import LabelSet
from unidex.model.saved_labels import read_labels, write_labels
from unidex.nn.array_network import ENCODER_TABLES, ArrayNetwork
from unidex.scoring.calibration import Calibration
from unidex.scoring.fitted_ranker import read_ranker
from unidex.scoring.knn import KnnPart
from unidex.scoring.layout import Layout, Weights
from unidex.scoring.lexical import LexicalPart
from unidex.scoring.linear_part import LinearPart
from unidex.scoring.links import Links
from unidex.scoring.pretrained import PretrainedPart
from unidex.scoring.scorer import Scorer
from unidex.storage.atomic import needs_restore, replace_folder, restore_folder, sync_folder, unfinished_folder
from unidex.storage.disk_errors import writing
from unidex.storage.locks import locked
from unidex.storage.mapped import load_arrays
from unidex.storage.small_numbers import has_numbers
from unidex.storage.tensors import save_tensors

if TYPE_CHECKING:
    from unidex.index import Index
    from unidex.model.model import Model
    from unidex.nn.network import Network

FORMAT = 6
# Before 6, codes of vectors were not compressed, and those of features had 6 bits. Before 5, whole numbers were saved
# by NumPy, names and snippets as they are, and vectors with 8 bits at least. Before 4, the weights of a transformer
# were in encoder.safetensors, not in encoder/, and the classifiers in a file of their own too.
_READ = (*OLD_NAMES, 3, 4, 5, FORMAT)
# The files and folders that are read, beside the manifest and the journal of label changes.
_PARTS = (
    "config.toml",
    "encoder.safetensors",
    "encoder",
    "classifier.safetensors",  # in formats before 4
    "labels.jsonl",
    "labels",
    "index",
    "neighbours",
    "lexical",
    "pretrained",
    "linear",
    "links",
    "calibration.json",
    "ranker.json",
    "fusing.json",  # a decision tree, in formats before 3
    "metrics.json",
    "train.jsonl",
    "train_texts.numbers",
    "train_texts.npy",  # of many texts, and in formats before 5
)
_TRAIN_TEXTS = "train_texts"
HASHED_WHOLE = 1 << 28  # bytes; of larger files, these parts are hashed
NUM_PARTS, PART_SIZE = 64, 1 << 20
_PARTS_HASHED = "parts:"  # before the hash of parts
_ENCODER = "encoder."  # before the names of the encoder's dense weights in a network


def save(folder: Path, model: Model) -> None:
    """Write a model folder: complete, or not at all. One that is there is replaced."""
    target, folder = folder, folder.resolve()
    with writing(target):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with unfinished_folder(folder) as unfinished:
            write_parts(unfinished, model)
            _put(unfinished, folder)


def _put(unfinished: Path, folder: Path) -> None:
    """Give a complete folder its name."""
    if not folder.exists() and not needs_restore(folder):
        try:
            unfinished.rename(folder)
        except OSError:
            # Another process has saved under the name meanwhile.
            if not folder.exists():
                raise
        else:
            return
    # The old folder may hold labels that are nowhere else, so that the new one must be on the disk first.
    sync_folder(unfinished)
    with locked(folder):
        replace_folder(unfinished, folder)


def restore(folder: Path) -> None:
    """Bring the old model back after a crash between the two renames of a save."""
    folder = folder.resolve()
    if needs_restore(folder):
        # A process that is between the two renames now holds the lock.
        with locked(folder):
            restore_folder(folder)


def load(
    folder: Path, device: str = "cpu"
) -> tuple[Config, Network | ArrayNetwork, LabelSet, Scorer, dict[str, Any], str, TextHashes | None]:
    """Read the parts of a model, in the order of its arguments; every file is checked against the manifest first."""
    restore(folder)
    _check_manifest(folder)
    try:
        return _read(folder, device)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError, OSError) as error:
        # The files are those of the manifest, but not the parts of one model.
        reason = " ".join(str(error).split())[:200]
        raise ModelError(
            f"{folder}: the files must be those of one model, but cannot be read as one "
            f"({type(error).__name__}: {reason}); copy the model again"
        ) from error


def _read(
    folder: Path, device: str
) -> tuple[Config, Network | ArrayNetwork, LabelSet, Scorer, dict[str, Any], str, TextHashes | None]:
    config = read_saved(folder)
    try:
        metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        log = (folder / "train.jsonl").read_text(encoding="utf-8")
        calibration = _read_json(folder / "calibration.json")
        ranker = _read_json(folder / ("ranker.json" if (folder / "ranker.json").exists() else "fusing.json"))
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelError(f"{folder}: the model cannot be read ({error}); copy it again") from None
    labels = read_labels(folder)
    index = indexes.load(folder / "index")
    network = _read_network(folder, config, index, device)
    parts = ("neighbours", "lexical", "pretrained", "linear", "links")
    knn_folder, lexical_folder, frozen_folder, linear_folder, links_folder = (folder / name for name in parts)
    scorer = Scorer(
        Layout.of(network, Weights.of(config.predict), config.predict.precision),
        index,
        labels,
        KnnPart.load(knn_folder) if knn_folder.is_dir() else None,
        None if ranker is None else read_ranker(ranker),
        None if calibration is None else Calibration.from_dict(calibration),
        LexicalPart.load(lexical_folder, labels.texts) if lexical_folder.is_dir() else None,
        PretrainedPart.load(frozen_folder, len(labels)) if frozen_folder.is_dir() else None,
        LinearPart.load(linear_folder, network.encoder.features.num_features) if linear_folder.is_dir() else None,
        Links.load(links_folder, len(labels)) if links_folder.is_dir() else None,
    )
    if not scorer.layout.has_tree and scorer.layout.num_head_columns > index.dim:
        raise ModelError(
            f"{folder / 'config.toml'}: the heads must have at most the {index.dim} numbers of a label in index/, but "
            f"have {scorer.layout.num_head_columns}; copy the model again"
        )
    if scorer.pretrained is not None:
        scorer.pretrained.share(columns_of(network.encoder))
    if missing := scorer.missing_part():
        rule = "the folder must have all files of the part, which the ranker reads, but has not; copy the model again"
        raise ModelError(f"{folder / missing}: {rule}")
    texts_file = folder / _TRAIN_TEXTS
    train_texts = TextHashes.load(texts_file) if has_numbers(texts_file) else None
    return config, network, labels, scorer, metrics, log, train_texts


def _read_network(folder: Path, config: Config, index: Index, device: str) -> Network | ArrayNetwork:
    """The network by array operations where it can do with them; else as a torch module, without its classifiers."""
    file = folder / "encoder.safetensors"
    reader = None if config.tree.levels else array_reader(config.encoder.kind)
    try:
        read = None if reader is None else reader.load(config, folder / "encoder")
        if read is not None:
            return ArrayNetwork.load(config, read, load_arrays(file))
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{folder}: the model cannot be read ({error}); copy it again") from None
    from unidex.model.restored_network import read_network

    return read_network(config, load_encoder(config, folder / "encoder"), file, index, device)


def _read_json(file: Path) -> Any:
    """The value in a JSON file; None where there is no file."""
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def write_parts(folder: Path, model: Model) -> None:
    """Write all files of a model into an empty folder."""
    scorer = model.scorer
    (folder / "config.toml").write_text(model.config.as_toml(), encoding="utf-8")
    weights = _weights(model.vectoriser)
    if not isinstance(model.vectoriser, ArrayNetwork) and saves_weights(model.config):
        weights = {name: tensor for name, tensor in weights.items() if not name.startswith(_ENCODER)}
    save_tensors(weights, folder / "encoder.safetensors")
    (folder / "encoder").mkdir()
    model.encoder.save(folder / "encoder")
    for file in folder.rglob("*.safetensors"):
        # safetensors lets only the owner read them, but a service often runs as another user.
        file.chmod(0o644)
    write_labels(folder, model.labels, lambda: model.known_words)
    scorer.index.save(folder / "index")
    if scorer.knn is not None:
        scorer.knn.save(folder / "neighbours")
    if scorer.calibration is not None:
        (folder / "calibration.json").write_text(scorer.calibration.as_json(), encoding="utf-8")
    if scorer.lexical is not None:
        scorer.lexical.save(folder / "lexical")
    if scorer.pretrained is not None:
        scorer.pretrained.save(folder / "pretrained")
    if scorer.linear is not None:
        scorer.linear.save(folder / "linear")
    if scorer.links is not None:
        scorer.links.save(folder / "links")
    if scorer.fitted is not None:
        (folder / "ranker.json").write_text(json.dumps(scorer.fitted.as_dict()) + "\n", encoding="utf-8")
    (folder / "metrics.json").write_text(json.dumps(model.metrics, indent=2) + "\n", encoding="utf-8")
    (folder / "train.jsonl").write_text(model.log, encoding="utf-8")
    if model.train_texts is not None:
        model.train_texts.save(folder / _TRAIN_TEXTS)
    (folder / "MODEL_CARD.md").write_text(_card(model), encoding="utf-8")
    manifest = {"format": FORMAT, "files": _hashes(folder)}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _weights(network: Network | ArrayNetwork) -> dict[str, Any]:
    """Everything that is learned but the classifiers, which are in the index, as arrays or tensors."""
    if isinstance(network, ArrayNetwork):
        return network.weights()
    tables = network.tables()
    return network.state_dict() | {name: tables[name].weight for name in ENCODER_TABLES.values() if name in tables}


def _hashes(folder: Path, expected: Mapping[str, Any] = MappingProxyType({})) -> dict[str, str]:
    """The hash of every file, each in the form of the expected one where there is one."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != "manifest.json")
    files += sorted(file for file in folder.rglob("manifest.json") if file.parent != folder)
    names = {str(file.relative_to(folder)): file for file in files}
    return {name: _hash(file, expected.get(name)) for name, file in names.items()}


def _hash(file: Path, expected: Any = None) -> str:
    """The hash of a file; of a large one, of its size and of parts all over it, so that a model opens in seconds.

    A manifest of an earlier version has hashes of whole files that are large now.
    """
    size = file.stat().st_size
    is_whole = size <= HASHED_WHOLE if expected is None else not str(expected).startswith(_PARTS_HASHED)
    with file.open("rb") as stream:
        if is_whole or size < PART_SIZE:
            return hashlib.file_digest(stream, "sha256").hexdigest()
        digest = hashlib.sha256(str(size).encode())
        for part in range(NUM_PARTS):
            stream.seek(part * (size - PART_SIZE) // (NUM_PARTS - 1))
            digest.update(stream.read(PART_SIZE))
    return f"{_PARTS_HASHED}{digest.hexdigest()}"


def _check_manifest(folder: Path) -> None:
    file = folder / "manifest.json"
    if not folder.exists():
        raise ModelError(f"{folder}: a model folder must exist, but this does not; unidex train writes one with --out")
    if (folder / "export.json").is_file() and not file.is_file():
        raise ModelError(
            f"{folder}: a model folder must hold manifest.json, but this is an export for another tool; "
            "name the model that it was made of"
        )
    if not file.is_file():
        raise ModelError(f"{folder}: a model folder must hold manifest.json, but this does not; is it a model?")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        expected, found_format = dict(manifest["files"]), manifest["format"]
    except (ValueError, KeyError, TypeError, RecursionError, OSError) as error:
        raise ModelError(f"{file}: the manifest cannot be read ({error}); copy the model again") from None
    if found_format not in _READ:
        raise ModelError(
            f"{file}: the model must have format {FORMAT}, but has {found_format}; train or convert it anew"
        )
    found = _hashes(folder, expected)
    for name, wanted in sorted(expected.items()):
        if found.get(name) != wanted:
            what = "changed" if name in found else "is missing"
            raise ModelError(f"{folder / name}: the file {what} since the model was saved; copy the model again")
    if unnamed := _unnamed(folder, expected):
        raise ModelError(
            f"{folder / unnamed[0]}: a part of a model must be one that its manifest names, but this is not; "
            "remove it, or copy the model again"
        )


def _unnamed(folder: Path, expected: Container[str]) -> list[str]:
    """Files that would be read as a part that the model does not have; other files, such as notes, are never read.

    Hashes are not made of files behind a link to a folder, so that such a link counts too.
    """
    entries = [file for file in folder.rglob("*") if file.is_file() or file.is_symlink()]
    names = sorted(file.relative_to(folder) for file in entries)
    return [str(name) for name in names if name.parts[0] in _PARTS and str(name) not in expected]


def _card(model: Model) -> str:
    config, metrics = model.config, model.metrics
    removed = int(model.labels.removed.sum())
    scores = metrics.get("test") or metrics.get("validation") or {}
    rows = [f"| {name} | {value:.2f} |" for name, value in scores.items() if isinstance(value, float)]
    table = "\n".join(["| metric | percent |", "|---|---:|", *rows]) if rows else "Not evaluated."
    return (
        f"# A unidex model\n\n"
        f"- recipe: {config.recipe or 'own'}. {config.about}\n"
        f"- data: {metrics.get('data', {}).get('name', 'not named')}, "
        f"{metrics.get('data', {}).get('num_train', 0):,} train texts\n"
        f"- labels: {len(model.labels) - removed:,}" + (f" ({removed:,} removed)" if removed else "") + "\n"
        f"- encoder: {config.encoder.kind}; heads: "
        + ", ".join(name for name in ("dual", "classifier") if getattr(config.heads, name))
        + f"; index: {'tree' if config.tree.levels else config.predict.index}\n\n## Scores on test\n\n{table}\n"
        + ("" if model.scorer.calibration is None else _card_of_probabilities(model.scorer.calibration))
    )


def _card_of_probabilities(calibration: Calibration) -> str:
    measured = calibration.measured
    rows = [
        f"| {name} | {threshold.probability:.3f} | {100 * threshold.precision:.1f} | {100 * threshold.recall:.1f} | "
        f"{100 * threshold.f1:.1f} |"
        for name, threshold in calibration.thresholds.items()
    ]
    table = "\n".join(["| threshold | probability | precision | recall | F1 |", "|---|---:|---:|---:|---:|", *rows])
    return (
        "\n## Probabilities\n\n"
        f"Fitted to the first {measured['num_places']} labels of {measured['num_texts']:,} held-out texts. "
        f"Expected calibration error there: {measured['ece_before']:.3f} before, {measured['ece_after']:.3f} after."
        + (f"\n\n{table}\n" if rows else "\n")
    )

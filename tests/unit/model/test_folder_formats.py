"""Model folders of earlier formats, with other names of settings and other files, are read and predict the same."""

import hashlib
import json
import re
import tomllib
import zlib

import numpy as np
import pytest

from helpers.synthetic import QUICK, topics
from unidex.config.renamed import RENAMED
from unidex.data.texts import Texts
from unidex.errors import ModelError
from unidex.model.explanation import explain
from unidex.model.folder import FORMAT, _hashes
from unidex.model.model import Model
from unidex.nn.array_network import ENCODER_TABLES
from unidex.scoring import nearest_texts
from unidex.storage.small_numbers import load_numbers
from unidex.storage.tensors import save_tensors
from unidex.verbs.train import train

CASES = {
    "kNN and label prior": ["predict.knn=0.3", "predict.label_prior=0.05", "predict.snippet_length=12"],
    "decision tree": ["train.validation=0.3", "predict.rank=decision-tree"],
}


# The names of format 2 that are no longer those of today.
RENAMED_2 = {"predict.combine": "predict.rank"}


def to_format_4(folder):
    """Write numbers, names and snippets as they were before they were compressed."""
    model = Model.load(folder)
    features, snippets = model.encoder.features, model.scorer.knn.snippets
    np.save(folder / "encoder" / "idf.npy", features.idf)
    for name, texts in (("encoder/names", features.names), ("neighbours/texts", snippets)):
        if texts is not None:
            (folder / f"{name}.texts").unlink()
            (folder / f"{name}.blocks.npy").unlink()
            Texts.of([texts[row] for row in range(len(texts))]).save(folder / name)
    for file in sorted(folder.rglob("*.numbers")):
        content = file.read_bytes()
        about = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        values = load_numbers(file.with_suffix(""), tuple(about["shape"]), np.dtype(about["type"]).type)
        if file.stem == "match_words":
            values = values[load_numbers(file.with_name("match_places"), (None,), np.int64)]
        if file.stem != "match_places":
            np.save(file.with_suffix(".npy"), values)
    for file in folder.rglob("*.numbers"):
        file.unlink()
    lists = folder / "neighbours" / "lists.faiss.zz"
    if lists.exists():
        lists.with_suffix("").write_bytes(zlib.decompress(lists.read_bytes()))
        lists.unlink()
    (folder / "manifest.json").write_text(json.dumps({"format": 4, "files": _hashes(folder)}), encoding="utf-8")


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_folder_of_format_4_predicts_and_explains_the_same(is_listed, tmp_path, monkeypatch):
    if is_listed:
        monkeypatch.setattr(nearest_texts, "EXACT_UP_TO", 50)
    texts = list(topics().test.texts)
    settings = [*QUICK, "train.epochs=2", "train.validation=0.3", "predict.rank=learned", "predict.snippet_length=12"]
    model = train(topics(), "unidec", settings=[*settings, "predict.precision=int8"], out=tmp_path / "model")
    assert (tmp_path / "model" / "neighbours" / "lists.faiss.zz").exists() == is_listed
    wanted = model.predict(texts, 5)
    reasons = explain(model, texts[0], k=2)
    to_format_4(tmp_path / "model")
    assert not list((tmp_path / "model").rglob("*.numbers"))
    old = Model.load(tmp_path / "model")
    old.save(tmp_path / "again")
    assert not list((tmp_path / "again").rglob("starts.npy"))
    for loaded in (old, Model.load(tmp_path / "again")):
        found = loaded.predict(texts, 5)
        assert found.ids.tolist() == wanted.ids.tolist()
        assert np.array_equal(found.scores, wanted.scores)
        assert explain(loaded, texts[0], k=2) == reasons
        assert loaded.train_texts.contains(topics().train.texts).all()


def packed_in_six_bits(codes):
    """Codes from -31 to 31 as format 5 has them."""
    shifted, half = (codes + 32).astype(np.uint8), codes.shape[1] // 2
    low = (shifted[:, :half] & 15) | (shifted[:, half:] & 15) << 4
    return np.concatenate([low, *(np.packbits(shifted >> bit & 1, axis=1) for bit in (4, 5))], axis=1)


def test_a_folder_of_format_5_with_codes_of_6_bits_predicts_the_same(tmp_path):
    texts, folder = list(topics().test.texts), tmp_path / "model"
    model = train(topics(), "unidec", settings=[*QUICK, "train.epochs=2", "predict.precision=int5"], out=folder)
    wanted = model.predict(texts, 5)
    # Codes of 4 bits are codes of 6 bits too.
    weights = model.vectoriser._dense_weights()
    for encoder, name in ENCODER_TABLES.items():
        own = getattr(model.vectoriser, encoder)
        if own is not None:
            weights[f"{name}.int6"] = packed_in_six_bits(own.table.codes_RD)
            weights[f"{name}.scales16"] = (own.table.scales_RG.view(np.uint32) >> 16).astype(np.uint16).view(np.int16)
    save_tensors(weights, folder / "encoder.safetensors")
    config = (folder / "config.toml").read_text(encoding="utf-8")
    assert 'precision = "int5"' in config
    (folder / "config.toml").write_text(config.replace('"int5"', '"int6"'), encoding="utf-8")
    codes = folder / "index" / "vectors_int8"
    np.save(codes.with_suffix(".npy"), load_numbers(codes, (None, None), np.int8))
    codes.with_suffix(".numbers").unlink()
    (folder / "manifest.json").write_text(json.dumps({"format": 5, "files": _hashes(folder)}), encoding="utf-8")
    old = Model.load(folder)
    assert old.config.predict.precision == "int8"
    old.save(tmp_path / "again")
    for loaded in (old, Model.load(tmp_path / "again")):
        found = loaded.predict(texts, 5)
        assert found.ids.tolist() == wanted.ids.tolist()
        assert np.array_equal(found.scores, wanted.scores)


def to_format(folder, number):
    """Give the recipe of a folder its former names, and the manifest the former format."""
    former = RENAMED_2 if number == 2 else {old: new for old, new in RENAMED.items() if old not in RENAMED_2}
    file = folder / "config.toml"
    lines, section = [], ""
    for line in file.read_text(encoding="utf-8").splitlines():
        header, key = re.fullmatch(r"\[(\w+)\]", line), line.partition(" = ")[0]
        section = header[1] if header else section
        for old, new in former.items():
            if new == f"{section}.{key}":
                line = line.replace(key, old.partition(".")[2], 1)
        if line.startswith("favour"):
            continue
        lines.append(line.replace('fuse = "decision-tree"', 'fuse = "tree"'))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["files"]["config.toml"] = hashlib.sha256(file.read_bytes()).hexdigest()
    if (folder / "ranker.json").exists():
        tree = json.loads((folder / "ranker.json").read_text(encoding="utf-8"))
        assert tree.pop("kind") == "decision-tree"
        (folder / "ranker.json").unlink()
        (folder / "fusing.json").write_text(json.dumps(tree), encoding="utf-8")
        del manifest["files"]["ranker.json"]
        manifest["files"]["fusing.json"] = hashlib.sha256((folder / "fusing.json").read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format": number}), encoding="utf-8")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("number", [1, 2])
def test_a_folder_of_an_earlier_format_predicts_the_same(case, number, tmp_path):
    texts = list(topics().test.texts)
    model = train(topics(), "unidec", settings=[*QUICK, "train.epochs=2", *CASES[case]], out=tmp_path / "model")
    wanted = model.predict(texts, 5)
    assert json.loads((tmp_path / "model" / "manifest.json").read_text())["format"] == FORMAT == 6
    to_format(tmp_path / "model", number)
    old = tomllib.loads((tmp_path / "model" / "config.toml").read_text(encoding="utf-8"))["predict"]
    names = {"neighbours", "num_neighbours", "prior", "fuse", "keep_texts"} if number == 1 else {"combine", "knn"}
    assert names <= old.keys()
    assert not {"rank", "favour"} & old.keys()
    loaded = Model.load(tmp_path / "model")
    assert loaded.config == model.config
    found = loaded.predict(texts, 5)
    assert found.ids.tolist() == wanted.ids.tolist()
    assert np.array_equal(found.scores, wanted.scores)
    # Saved again, it has the present format.
    loaded.save(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "manifest.json").read_text())["format"] == FORMAT
    assert (tmp_path / "again" / "ranker.json").exists() == (case == "decision tree")
    assert not (tmp_path / "again" / "fusing.json").exists()
    assert Model.load(tmp_path / "again").predict(texts, 5).ids.tolist() == wanted.ids.tolist()


def test_a_folder_that_is_no_model_is_refused_by_its_reason(tmp_path):
    with pytest.raises(ModelError, match="a model folder must exist, but this does not"):
        Model.load(tmp_path / "missing")
    with pytest.raises(ModelError, match=r"must hold manifest\.json, but this does not; is it a model"):
        Model.load(tmp_path)
    (tmp_path / "export.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ModelError, match="is an export for another tool; name the model that it was made of"):
        Model.load(tmp_path)


def test_a_recipe_that_was_cut_short_is_refused_by_its_name(tmp_path):
    folder = tmp_path / "model"
    train(topics(), "unidec", settings=[*QUICK, "train.epochs=1"], out=folder)
    whole = (folder / "config.toml").read_text(encoding="utf-8")
    # All that follows gets its default, also the dimensions of the heads.
    (folder / "config.toml").write_text(whole.split("[heads]")[0], encoding="utf-8")
    (folder / "manifest.json").write_text(json.dumps({"format": FORMAT, "files": _hashes(folder)}), encoding="utf-8")
    with pytest.raises(ModelError, match=r"config\.toml: the heads must have at most the 64 numbers of a label"):
        Model.load(folder)

"""Model folders of formats 1 and 2, which have settings and files under former names, are read and predict the same."""

import hashlib
import json
import re
import tomllib

import numpy as np
import pytest

from helpers.synthetic import QUICK, topics
from unidex.config.renamed import RENAMED
from unidex.model.folder import FORMAT
from unidex.model.model import Model
from unidex.verbs.train import train

CASES = {
    "kNN and label prior": ["predict.knn=0.3", "predict.label_prior=0.05", "predict.snippet_length=12"],
    "decision tree": ["train.validation=0.3", "predict.rank=decision-tree"],
}


# The names of format 2 that are no longer those of today.
RENAMED_2 = {"predict.combine": "predict.rank"}


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
    assert json.loads((tmp_path / "model" / "manifest.json").read_text())["format"] == FORMAT == 4
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

"""Model folders of format 1, which have settings under their former names, are read and predict the same."""

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


def to_format_1(folder):
    """Give the recipe of a folder its former names, and the manifest the former format."""
    file = folder / "config.toml"
    lines, section = [], ""
    for line in file.read_text(encoding="utf-8").splitlines():
        header, key = re.fullmatch(r"\[(\w+)\]", line), line.partition(" = ")[0]
        section = header[1] if header else section
        for old, new in RENAMED.items():
            if new == f"{section}.{key}":
                line = line.replace(key, old.partition(".")[2], 1)
        lines.append(line.replace('fuse = "decision-tree"', 'fuse = "tree"'))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["files"]["config.toml"] = hashlib.sha256(file.read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format": 1}), encoding="utf-8")


@pytest.mark.parametrize("case", CASES)
def test_a_folder_of_format_1_predicts_the_same(case, tmp_path):
    texts = list(topics().test.texts)
    model = train(topics(), "unidec", settings=[*QUICK, "train.epochs=2", *CASES[case]], out=tmp_path / "model")
    wanted = model.predict(texts, 5)
    assert json.loads((tmp_path / "model" / "manifest.json").read_text())["format"] == FORMAT == 2
    to_format_1(tmp_path / "model")
    old = tomllib.loads((tmp_path / "model" / "config.toml").read_text(encoding="utf-8"))["predict"]
    assert {"neighbours", "num_neighbours", "prior", "fuse", "keep_texts"} <= old.keys()
    loaded = Model.load(tmp_path / "model")
    assert loaded.config == model.config
    found = loaded.predict(texts, 5)
    assert found.ids.tolist() == wanted.ids.tolist()
    assert np.array_equal(found.scores, wanted.scores)
    # Saved again, it has the present format.
    loaded.save(tmp_path / "again")
    assert Model.load(tmp_path / "again").predict(texts, 5).ids.tolist() == wanted.ids.tolist()

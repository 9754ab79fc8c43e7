"""Folders of sentence-transformers: its own vectors come out of ours, and it opens the folders that we write."""

import hashlib
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers.tiny_transformer import TEXTS, loaded
from unidex.config import Encoder as Settings
from unidex.config import recipes
from unidex.encoders.registry import build_encoder
from unidex.encoders.transformer import TransformerEncoder
from unidex.errors import ConfigError, ModelError
from unidex.model.model import Model
from unidex.nn import pretrained_source
from unidex.nn.sentence_modules import read_modules
from unidex.verbs.train import train

LENGTH = 12


@pytest.fixture(scope="module")
def library():
    return pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")


def modules_of(library, tiny, pooling, tail):
    from sentence_transformers.sentence_transformer import modules as models

    transformer = models.Transformer(str(tiny), max_seq_length=LENGTH)
    return library.SentenceTransformer(modules=[transformer, models.Pooling(32, pooling_mode=pooling), *tail(models)])


TAILS = {
    "nothing": lambda models: [],
    "Normalize": lambda models: [models.Normalize()],
    "Dense": lambda models: [models.Dense(32, 8)],
    "two Dense, one without bias, and Normalize": lambda models: [
        models.Dense(32, 24, bias=False, activation_function=torch.nn.GELU()),
        models.Dense(24, 7, activation_function=None),
        models.Normalize(),
    ],
    "Dense with a residual": lambda models: [
        models.Dense(32, 32, activation_function=torch.nn.ReLU(), use_residual=True),
        models.Dense(32, 9, use_residual=True),
    ],
}


@pytest.mark.parametrize(
    ("pooling", "tail"),
    [(pooling, "nothing") for pooling in ("cls", "mean", "max", "lasttoken")] + [("mean", tail) for tail in TAILS][1:],
)
def test_vectors_are_those_of_sentence_transformers(library, tiny, tmp_path, small_chunks, pooling, tail):
    torch.manual_seed(3)
    theirs = modules_of(library, tiny, pooling, TAILS[tail])
    theirs.save(str(tmp_path / "theirs"))
    expected = theirs.encode(TEXTS, convert_to_tensor=True).cpu()
    ours = loaded(tmp_path / "theirs", max_length=LENGTH)
    assert ours.dim == expected.shape[1]
    found = ours(ours.prepare(TEXTS)).detach()
    assert not torch.allclose(found.norm(dim=1), torch.ones(len(TEXTS)))
    if tail.endswith("Normalize"):
        # A last Normalize is the heads' work (heads.dual_normalised).
        found = torch.nn.functional.normalize(found, dim=1)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)
    # A recipe that names a pooling gets it.
    if pooling != "cls":
        assert loaded(tmp_path / "theirs", max_length=LENGTH, pooling="cls").pooling == "cls"
    # And theirs reads what ours writes.
    ours.save(tmp_path / "ours")
    again = library.SentenceTransformer(str(tmp_path / "ours"), device="cpu").encode(
        TEXTS, convert_to_tensor=True, normalize_embeddings=tail.endswith("Normalize")
    )
    torch.testing.assert_close(again, expected, atol=2e-5, rtol=0)


def test_the_package_of_minilm_has_its_modules():
    try:
        folder = pretrained_source.modules_folder("minilm")
    except ConfigError as error:
        pytest.skip(str(error))
    modules = read_modules(folder)
    assert modules.pooling == "mean"
    assert modules.tail == []


def test_a_name_on_the_hub_has_its_modules_too(library, tiny, tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    modules_of(library, tiny, "max", TAILS["Dense"]).save(str(tmp_path))
    asked = []
    monkeypatch.setattr(hub, "snapshot_download", lambda *names, **patterns: asked.append(names) or str(tmp_path))
    assert pretrained_source.modules_folder("owner/name") == tmp_path
    assert asked == [("owner/name",)]


def damaged(folder, file, change):
    value = json.loads((folder / file).read_text())
    change(value)
    (folder / file).write_text(json.dumps(value))


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("modules.json", lambda rows: rows[2].update(type="custom.Head"), "module 2 is 'custom.Head'"),
        ("modules.json", lambda rows: rows[2].pop("path"), "each module must have a type and a path"),
        ("2_Dense/config.json", lambda about: about.update(activation_function="os.system"), "but is 'os.system'"),
        ("2_Dense/config.json", lambda about: about.update(out_features=5), "a dense layer .* must be here, but"),
        ("2_Dense/config.json", lambda about: about.update(module_input_name="x"), "must read and write the vector"),
        ("1_Pooling/config.json", lambda about: about.update(pooling_mode=["cls", "max"]), "but is cls, max"),
        ("1_Pooling/config.json", lambda about: about.update(pooling_mode="weightedmean"), "but is weightedmean"),
    ],
)
def test_a_folder_that_cannot_be_honoured_is_refused(library, tiny, tmp_path, file, change, message):
    modules_of(library, tiny, "mean", TAILS["Dense"]).save(str(tmp_path))
    damaged(tmp_path, file, change)
    with pytest.raises(ModelError, match=message):
        loaded(tmp_path, max_length=LENGTH)


def test_lower_case_is_honoured(library, tiny, tmp_path):
    theirs = modules_of(library, tiny, "mean", TAILS["nothing"])
    theirs.save(str(tmp_path))
    # A tokenizer that tells capitals apart.
    backend = json.loads((tmp_path / "tokenizer.json").read_text())
    backend["normalizer"]["lowercase"] = False
    (tmp_path / "tokenizer.json").write_text(json.dumps(backend))
    damaged(tmp_path, "tokenizer_config.json", lambda about: about.update(do_lower_case=False))
    loud = [text.upper() for text in TEXTS]
    differs = loaded(tmp_path, max_length=LENGTH).prepare(loud).as_lists()
    damaged(tmp_path, "sentence_bert_config.json", lambda about: about.update(do_lower_case=True))
    ours = loaded(tmp_path, max_length=LENGTH)
    assert ours.prepare(loud).as_lists() == ours.prepare(TEXTS).as_lists() != differs


@pytest.fixture(scope="module")
def trained(library, tiny, tmp_path_factory):
    """A model whose encoder has a Dense module; its folder, and its vectors."""
    folder = tmp_path_factory.mktemp("trained")
    torch.manual_seed(3)
    modules_of(library, tiny, "lasttoken", TAILS["Dense"]).save(str(folder / "base"))
    pairs = [(text or "the hat", ["shoe" if "shoe" in text else "hat"]) for text in TEXTS * 4]
    settings = [
        f"encoder.path={folder / 'base'}",
        "encoder.kind=transformer",
        "encoder.max_length=12",
        "train.epochs=1",
    ]
    model = train(pairs, "unidec", settings=[*settings, "heads.dim=6"], out=folder / "model", test_fraction=0.2)
    return folder / "model", model


def encoder_vectors(model):
    return model.network.encode(model.network.encoder.prepare(TEXTS)).numpy()


def test_the_encoder_of_a_model_folder_opens_in_other_tools(library, trained):
    transformers = pytest.importorskip("transformers")
    folder, model = trained
    expected = encoder_vectors(model)
    assert np.array_equal(encoder_vectors(Model.load(folder)), expected)
    theirs = library.SentenceTransformer(str(folder / "encoder"), device="cpu")
    np.testing.assert_allclose(theirs.encode(TEXTS), expected, atol=2e-5)
    # The same transformer without the modules behind it.
    opened = transformers.AutoModel.from_pretrained(folder / "encoder")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "encoder")
    with torch.no_grad():
        hidden = opened(**tokenizer(["red shoes"], return_tensors="pt")).last_hidden_state[:, -1]
    assert np.allclose(model.network.encoder.tail(hidden).detach().numpy(), expected[:1], atol=2e-5)
    # Its weights are there once.
    assert not [name for name in load_file(folder / "encoder.safetensors") if name.startswith("encoder.")]


def test_the_encoder_of_a_model_folder_starts_another_model_with_its_pooling(trained):
    folder, model = trained
    config = recipes.load("depsl", ["encoder.kind=transformer", f"encoder.path={folder}", "encoder.max_length=12"])
    encoder = build_encoder(config, [], [])
    assert encoder.pooling == "last"
    with torch.no_grad():
        assert np.array_equal(encoder(encoder.prepare(TEXTS)).numpy(), encoder_vectors(model))


def test_a_transformer_of_format_3_is_read(tiny, tmp_path):
    pairs = [(text or "the hat", ["shoe" if "shoe" in text else "hat"]) for text in TEXTS * 4]
    settings = [f"encoder.path={tiny}", "encoder.kind=transformer", "encoder.max_length=12", "train.epochs=1"]
    settings += ["encoder.pooling=cls", "heads.dim=6"]
    folder = tmp_path / "model"
    model = train(pairs, "unidec", settings=settings, out=folder, test_fraction=0.2)
    # As format 3 had it: the shape and the tokenizer in encoder/, all weights beside it.
    weights = {name: value.contiguous() for name, value in model.network.state_dict().items()}
    save_file(weights, folder / "encoder.safetensors")
    for file in [*(folder / "encoder").rglob("*")][::-1]:
        if file.name in {"model.safetensors", "modules.json"} or file.parent.name == "1_Pooling":
            file.unlink()
    manifest = json.loads((folder / "manifest.json").read_text())
    hashes = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in manifest["files"]
        if (folder / name).exists()
    }
    (folder / "manifest.json").write_text(json.dumps({"format": 3, "files": hashes}))
    again = Model.load(folder)
    assert np.array_equal(encoder_vectors(again), encoder_vectors(model))
    config = recipes.load("depsl", ["encoder.kind=transformer", f"encoder.path={folder}", "encoder.max_length=12"])
    assert build_encoder(config, [], []).pooling == "cls"
    again.save(tmp_path / "again")
    assert np.array_equal(encoder_vectors(Model.load(tmp_path / "again")), encoder_vectors(model))
    assert TransformerEncoder.from_pretrained(str(tmp_path / "again" / "encoder"), Settings()).pooling == "cls"

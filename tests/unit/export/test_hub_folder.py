"""A folder for the Hugging Face hub: its card is read by the hub's own library, and the folder is a model."""

import shutil
from types import SimpleNamespace

import pytest

from unidex.errors import UnidexError
from unidex.model.model import Model

hub = pytest.importorskip("huggingface_hub", reason="huggingface-hub is not installed")


def test_the_folder_is_a_model_with_a_card(static_model, data, tmp_path):
    static_model.export("huggingface", tmp_path / "out")
    texts = list(data.test.texts)[:5]
    assert Model.load(tmp_path / "out").predict(texts, 3).ids.tolist() == static_model.predict(texts, 3).ids.tolist()
    card = hub.ModelCard.load(tmp_path / "out" / "README.md")
    assert (card.data.library_name, card.data.pipeline_tag, card.data.datasets) == (
        "unidex",
        "text-classification",
        ["topics"],
    )
    assert "extreme-multi-label-classification" in card.data.tags
    assert "P@1" in card.data.metrics
    assert "trained on 240 texts with the recipe static" in card.text


class Hub:
    """What the library does of the hub, with a local folder in place of the hub."""

    def __init__(self, place):
        self.place, self.created = place, []

    def create_repo(self, name, *, exist_ok):
        assert exist_ok
        self.created.append(name)

    def upload_folder(self, *, folder_path, repo_id):
        shutil.copytree(folder_path, self.place / repo_id)
        return f"https://huggingface.co/{repo_id}/tree/main"


@pytest.mark.parametrize("to", ["huggingface", "sentence-transformers"])
def test_a_folder_is_pushed_when_it_is_complete(to, static_model, tmp_path, monkeypatch):
    fake = Hub(tmp_path / "hub")
    monkeypatch.setattr(hub, "HfApi", lambda: fake)
    done = static_model.export(to, tmp_path / "out", push_to="owner/name")
    assert fake.created == ["owner/name"]
    assert done["pushed_to"].endswith("owner/name/tree/main")
    pushed = sorted(
        str(file.relative_to(fake.place / "owner/name")) for file in fake.place.rglob("*") if file.is_file()
    )
    assert pushed == sorted(done["files"])
    assert "owner/name" in (fake.place / "owner/name" / "README.md").read_text()


def test_a_failed_upload_leaves_the_folder_and_says_so(static_model, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(hub, "HfApi", lambda: SimpleNamespace(create_repo=refuse))
    with pytest.raises(UnidexError, match=r"upload .* failed \(no network\); .*out is complete: hf upload owner/name"):
        static_model.export("huggingface", tmp_path / "out", push_to="owner/name")
    assert (tmp_path / "out" / "README.md").exists()

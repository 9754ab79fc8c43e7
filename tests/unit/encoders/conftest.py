"""A tiny transformer with random weights."""

import pytest

from helpers.tiny_transformer import write_tiny
from unidex.encoders import transformer as transformer_module


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The folder of a BERT of two layers with random weights."""
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of very few tokens, so that small inputs are cut too."""
    monkeypatch.setattr(transformer_module, "_TOKENS_ON_CPU", (4, 16))

"""Tokens that may change labels."""

import logging

import pytest

from unidex.errors import ConfigError
from unidex.server.security import Tokens


def test_tokens_are_read_and_told_apart(tmp_path, caplog):
    caplog.set_level(logging.WARNING, logger="unidex")
    file = tmp_path / "tokens"
    file.write_text("# who\n0123456789abcdef\n\n  another-token-of-ours  \n")
    file.chmod(0o600)
    tokens = Tokens.read(file)
    assert tokens.allow("0123456789abcdef")
    assert tokens.allow("another-token-of-ours")
    for wrong in ("", "0123456789abcde", "0123456789abcdeg", "# who", "\udcff"):
        assert not tokens.allow(wrong)
    assert caplog.text == ""
    file.chmod(0o644)
    Tokens.read(file)
    assert "everybody may read them" in caplog.text
    for bad in ("short", "", "0123456789abcdef\nwith a space in it", "t\u00f6ken-that-is-long-enough"):
        file.write_text(bad)
        with pytest.raises(ConfigError) as refused:
            Tokens.read(file)
        assert not bad or bad.split("\n")[-1] not in str(refused.value)
    with pytest.raises(ConfigError, match="--token-file must be a file"):
        Tokens.read(tmp_path / "nothing")

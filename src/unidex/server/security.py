"""Tokens that allow to change labels, and the security headers of every answer."""

from __future__ import annotations

import hashlib
import hmac
import logging
import stat
from pathlib import Path

from unidex.errors import ConfigError

logger = logging.getLogger(__name__)

TOKEN_LENGTH = 16
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    ("content-security-policy", _POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
]


class Tokens:
    """The tokens of a file, one per line. Only their hashes are stored.

    >>> tokens = Tokens(["correct-horse-battery"])
    >>> tokens.allow("correct-horse-battery"), tokens.allow("correct-horse"), tokens.allow("")
    (True, False, False)
    """

    def __init__(self, tokens: list[str]) -> None:
        self._hashes = [_hash(token) for token in tokens]

    @classmethod
    def read(cls, file: Path) -> Tokens:
        """Read the tokens of a file; a line that starts with # is a comment."""
        try:
            mode = file.stat().st_mode
            lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file}: --token-file must be a file that can be read, but: {error}") from None
        tokens = [line for line in lines if line and not line.startswith("#")]
        if not tokens:
            raise ConfigError(f"{file}: --token-file must have one token per line, but has none; write one into it")
        for number, line in enumerate(lines, start=1):
            # The number of the line, never its content.
            if line and not line.startswith("#") and (len(line) < TOKEN_LENGTH or not line.isascii() or " " in line):
                raise ConfigError(
                    f"{file}:{number}: a token must have at least {TOKEN_LENGTH} characters of ASCII without spaces, "
                    "but this one does not; `openssl rand -hex 32` makes one"
                )
        if mode & stat.S_IROTH:
            logger.warning(
                "%s: only the owner should be able to read the tokens, but everybody may read them; run chmod 600.",
                file,
            )
        return cls(tokens)

    def allow(self, token: str) -> bool:
        """Tell whether a token is valid, in constant time."""
        given = _hash(token)
        allowed = False
        for known in self._hashes:
            allowed |= hmac.compare_digest(known, given)
        return allowed


def _hash(token: str) -> bytes:
    # Hashes have one length, so that the time does not depend on the length of the token.
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()

"""The files of the page: read once into memory, plain and compressed, with ETags."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("page")
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class PageFile:
    """A file of the page.

    Attributes:
        body: the content.
        packed: the compressed content.
        media_type: its media type.
        etag: changes with the content.
    """

    body: bytes
    packed: bytes
    media_type: str
    etag: str

    def answer(self, accepts: str, known: str) -> tuple[int, bytes, dict[str, str]]:
        """Return status, body and headers for the accept-encoding and if-none-match headers of a browser."""
        # A browser asks each time, usually gets 304, and sees a new release at once.
        headers = {"etag": self.etag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if any(tag.strip() in (self.etag, f"W/{self.etag}", "*") for tag in known.split(",")):
            return 304, b"", headers
        headers["content-type"] = self.media_type
        if "gzip" in accepts:
            return 200, self.packed, headers | {"content-encoding": "gzip"}
        return 200, self.body, headers


def read_page(folder: Path = FOLDER) -> dict[str, PageFile]:
    """Read the files of the page by name; no other file can be requested."""
    files = {}
    for file in sorted(folder.iterdir()):
        if file.suffix in _TYPES:
            body = file.read_bytes()
            # Without a time the same file gives the same bytes.
            packed = gzip.compress(body, mtime=0)
            tag = hashlib.sha256(body).hexdigest()[:16]
            files[file.name] = PageFile(body, packed, _TYPES[file.suffix], f'"{tag}"')
    return files

"""The page's files: read once, held in memory plain and compressed, known by their hashes."""

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
        body: as it is.
        packed: compressed.
        media_type: what it is.
        etag: by which a browser knows whether it has changed.
    """

    body: bytes
    packed: bytes
    media_type: str
    etag: str

    def answer(self, accepts: str, known: str) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers for a browser that accepts these encodings and has files with these tags."""
        # A browser asks each time, and mostly hears that nothing has changed: a new release is seen at once.
        headers = {"etag": self.etag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if any(tag.strip() in (self.etag, f"W/{self.etag}", "*") for tag in known.split(",")):
            return 304, b"", headers
        headers["content-type"] = self.media_type
        if "gzip" in accepts:
            return 200, self.packed, headers | {"content-encoding": "gzip"}
        return 200, self.body, headers


def read_page(folder: Path = FOLDER) -> dict[str, PageFile]:
    """The page's files by name; no other can be asked for."""
    files = {}
    for file in sorted(folder.iterdir()):
        if file.suffix in _TYPES:
            body = file.read_bytes()
            # No time in the header: the same file is the same bytes.
            packed = gzip.compress(body, mtime=0)
            tag = hashlib.sha256(body).hexdigest()[:16]
            files[file.name] = PageFile(body, packed, _TYPES[file.suffix], f'"{tag}"')
    return files

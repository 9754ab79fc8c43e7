"""Where a trained transformer comes from: a folder, a name on the Hugging Face hub, or an installed package."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unidex.errors import ConfigError, MissingExtraError, ModelError, quoted
from unidex.nn.token_vectors import MINILM, minilm_folder

logger = logging.getLogger(__name__)


def transformers_library() -> Any:
    """The library, or an error that says how to install it."""
    try:
        import transformers
    except ImportError:
        raise MissingExtraError("the transformer encoder", "transformers") from None
    return transformers


def lower_case(tokenizer: Any) -> None:
    """Let a tokenizer lower-case texts first."""
    from tokenizers import normalizers

    backend = tokenizer.backend_tokenizer
    others = [] if backend.normalizer is None else [backend.normalizer]
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *others])


def modules_folder(path: str) -> Path:
    """The folder whose modules.json, if there is one, says what stands behind a transformer."""
    folder = minilm_folder() if path == MINILM else Path(path).expanduser()
    if folder.is_dir() or source_of(path) != path:
        return folder
    try:
        from huggingface_hub import snapshot_download

        # Nothing but the small modules: the transformer itself is read by name.
        return Path(snapshot_download(path, allow_patterns=["modules.json", "sentence_bert_config.json", "[0-9]_*/*"]))
    except Exception:  # Whatever is wrong with the name, reading the transformer says it.
        return folder


def source_of(path: str) -> str:
    """What the library reads: a folder that is there, or a name on the hub."""
    if path == MINILM:
        return str(minilm_folder())
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelError(f"{folder}: a transformer's folder must hold config.json, but this does not")
        return str(folder)
    # A name on the hub is "name" or "owner/name"; everything else can only be meant as a folder.
    if path.startswith((".", "~", "/")) or path.count("/") > 1 or "\\" in path or folder.exists():
        raise ConfigError(
            "a transformer must be a folder or a name on the Hugging Face hub, but "
            f"{quoted(path, limit=200)} is neither"
        )
    return path


@contextmanager
def silent(*, bars: bool = False) -> Iterator[None]:
    """Keep the library from logging, and from showing progress unless ``bars``."""
    chatter = transformers_library().utils.logging
    before, had_bars = chatter.get_verbosity(), chatter.is_progress_bar_enabled()
    # What the library would warn of is checked by us and is an error. The hub's client tells of each of its tries.
    chatter.set_verbosity_error()
    client = logging.getLogger("huggingface_hub")
    client_before = client.level
    client.setLevel(logging.ERROR)
    if not bars:
        chatter.disable_progress_bar()
    try:
        yield
    finally:
        chatter.set_verbosity(before)
        client.setLevel(client_before)
        if had_bars:
            chatter.enable_progress_bar()


@contextmanager
def reading(source: str) -> Iterator[None]:
    """Read in silence, except for downloads; any failure becomes an error of one line."""
    is_folder = Path(source).is_dir()
    if not is_folder:
        logger.info("%s is no folder here: it is looked for on the Hugging Face hub.", quoted(source, limit=200))
    try:
        with silent(bars=not is_folder):
            yield
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        reason = " ".join(str(error).split("\n")[0].split()) or type(error).__name__
        if is_folder:
            raise ModelError(f"{source}: a transformer and its tokenizer must be here, but: {reason}") from None
        raise ModelError(
            "a transformer must be a folder or a name on the Hugging Face hub within reach, but "
            f"{quoted(source, limit=200)} is no folder here, and from the hub: {reason} Download it where there is a "
            "network, and give the folder"
        ) from None

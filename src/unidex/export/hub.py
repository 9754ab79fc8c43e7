"""Upload of an exported folder to the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unidex.errors import MissingExtraError, UnidexError
from unidex.export.registry import ExportOptions


def push(folder: Path, options: ExportOptions) -> dict[str, Any]:
    """Upload a folder where --push-to names a repository; the library finds the user's token by itself."""
    if options.push_to is None:
        return {}
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise MissingExtraError("--push-to", "transformers") from None
    api = HfApi()
    try:
        api.create_repo(options.push_to, exist_ok=True)
        done = api.upload_folder(folder_path=folder, repo_id=options.push_to)
    except Exception as error:  # The library's errors have many classes; the folder is whole in any case.
        reason = " ".join(str(error).split())[:300]
        raise UnidexError(
            f"{options.push_to}: the upload to the Hugging Face hub failed ({reason}); {folder} is complete: "
            f"hf upload {options.push_to} {folder}"
        ) from None
    return {"pushed_to": str(done)}

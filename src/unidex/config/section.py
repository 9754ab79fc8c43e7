"""What a group of settings is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A group of settings. Strict: no unknown key, no silent conversion."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

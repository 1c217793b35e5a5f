"""What is read from disk, and checked whole before it is used."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A model whose fields are all known and whose values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)

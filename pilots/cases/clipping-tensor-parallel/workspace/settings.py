"""The configuration of a run."""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """Fields of the JSON file; what it leaves out has the value given here."""

    seed: int = 1
    steps: int = 4
    clip: float = 0.1
    """Bound on the global norm of the gradients. 0: no clipping."""
    learning_rate: float = 1e-3
    batch: int = 4
    """Sequences per step."""
    length: int = 64
    """Tokens per sequence."""
    vocabulary: int = 512
    width: int = 128
    heads: int = 4
    layers: int = 2

    @classmethod
    def read(cls, path: Path) -> "Settings":
        """Settings of a JSON file."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

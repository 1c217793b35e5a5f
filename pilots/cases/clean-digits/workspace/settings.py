"""The configuration of a run."""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """Fields of the JSON file; what it leaves out has the value given here."""

    seed: int = 3
    steps: int = 4
    batch: int = 50
    """Examples of an update, over all ranks and passes."""
    passes: int = 2
    """Forward passes of a rank per update."""
    features: int = 128
    width: int = 64
    clip: float = 1.0
    learning_rate: float = 1e-2
    decay: float = 0.1
    warmup: int = 2

    @classmethod
    def read(cls, path: Path) -> "Settings":
        """Settings of a JSON file."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

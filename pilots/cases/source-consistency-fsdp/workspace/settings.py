"""The configuration of a run."""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """Fields of the JSON file; what it leaves out has the value given here."""

    downloads: tuple[str, ...]
    """For each node, the day on which its cache was filled. The world's affair (``caches``)."""
    seed: int = 7
    steps: int = 2
    batch: int = 1
    """Sequences of a rank per step."""
    length: int = 128
    """Tokens per sequence."""
    learning_rate: float = 1e-3

    @classmethod
    def read(cls, path: Path) -> "Settings":
        """Settings of a JSON file."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

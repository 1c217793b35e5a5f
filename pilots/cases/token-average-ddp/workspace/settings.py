"""The configuration of a run."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Settings:
    """Fields of the JSON file; what it leaves out has the value given here."""

    architecture: Literal["gpt2", "llama"] = "gpt2"
    seed: int = 5
    steps: int = 3
    batch: int = 1
    """Examples of a rank in one forward pass."""
    accumulation: int = 1
    """Forward passes of a rank per update."""
    answers: tuple[int, ...] = (41, 20, 40, 20, 14, 52, 33, 6)
    """Tokens of the answers, in turn."""
    examples: int = 64
    learning_rate: float = 1e-3
    vocabulary: int = 512
    width: int = 128
    layers: int = 2

    @classmethod
    def read(cls, path: Path) -> "Settings":
        """Settings of a JSON file."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

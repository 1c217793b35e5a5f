"""Fixtures of the tests for agents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.agent_support import FAULT, SLEEPER, TRAIN


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with ``train.py``, ``suspect.py`` (its head is never trained) and ``sleeper.py``."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "suspect.py").write_text(TRAIN.replace("# HERE\n", FAULT))
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    return tmp_path

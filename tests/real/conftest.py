"""One folder of runs for all of these tests. ``TRAINCHECK_TEST_RUNS=FOLDER`` keeps it, for a quick second go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .running import Runs


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    kept = os.environ.get("TRAINCHECK_TEST_RUNS")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("runs")
    folder.mkdir(parents=True, exist_ok=True)
    return Runs(folder)

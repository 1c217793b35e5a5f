"""One small finished study for all tests that read a study's folder: ``pytest_plugins`` of these names this module."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from traincheck.overhead import report
from traincheck.overhead.policy import load_policy
from traincheck.overhead.study import Study
from traincheck.overhead.trial import Place

STUDY = (Path(__file__).parent / "tiny.toml").read_text()


@pytest.fixture(scope="session")
def finished_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a finished study with its report. Not to be changed."""
    folder = tmp_path_factory.mktemp("finished")
    file = folder / "tiny.toml"
    file.write_text(STUDY)
    where = Place(folder / "out", load_policy(file), sys.executable, None, str(Path(__file__).parent))
    Study(where, file, lambda what, done, total: None).run()
    report.write(folder / "out", folder / "out")
    return folder / "out"

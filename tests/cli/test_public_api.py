"""``import traincheck`` costs next to nothing, and its names are what they say."""

from __future__ import annotations

import subprocess
import sys

import pytest

import traincheck
from tests.cli.cli_support import plain_environment


def run(program: str) -> str:
    result = subprocess.run([sys.executable, "-c", program], env=plain_environment(), capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_import_is_cheap():
    extra = run(
        "import __future__, sys, typing, importlib, types\n"
        "before = set(sys.modules)\n"
        "import traincheck\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    assert extra == "traincheck"


def test_all_names_are_listed_and_there():
    assert set(traincheck.__all__) <= set(dir(traincheck))
    for name in traincheck.__all__:
        assert getattr(traincheck, name) is not None


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = traincheck.nonsense


@pytest.mark.parametrize("verb", ["collect", "infer", "check"])
@pytest.mark.parametrize("first", ["", "import traincheck.{0}", "from traincheck.{0} import *"])
def test_verbs_can_be_called_however_their_module_was_imported(verb, first):
    program = first.format(verb) + (
        "\nimport traincheck, inspect, types\n"
        f"verb = traincheck.{verb}\n"
        "assert callable(verb), verb\n"
        "assert isinstance(verb, types.ModuleType)\n"
        "assert len(inspect.signature(verb).parameters) > 0\n"
    )
    run(program)


def test_steps_and_stages_are_harmless_without_a_recording():
    run(
        "import traincheck, sys\n"
        "traincheck.step()\n"
        "with traincheck.stage('evaluation'):\n"
        "    pass\n"
        "assert 'torch' not in sys.modules\n"
    )

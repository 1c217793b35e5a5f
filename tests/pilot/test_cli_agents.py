"""Real command-line agents in the jail: their model is a script, everything else is theirs.

Needs npm and its registry, or their folder in TRAINCHECK_PILOT_AGENTS.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from traincheck.pilot import jail, running
from traincheck.pilot.device.launching import service
from traincheck.pilot.ledger import read
from traincheck.pilot.planning import freeze, read_draft, write
from traincheck.pilot.running import TOOLS
from traincheck.pilot.sources import Objects

from .places_support import CASES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not jail.available().ok, reason=f"no jail here: {jail.available().reason}"),
]

PACKAGES = {"claude_code": "@anthropic-ai/claude-code@2.1.197", "codex_cli": "@openai/codex@0.171.0"}
DRAFT = """
schema = 1
name = "cli"
cases = ["tiny"]
arms = ["control"]
trials = 1
[budgets]
time_s = 400
working_time_s = 300
tokens = 100000
device_seconds = 60.0
[[solvers]]
name = "agent"
agent = "{agent}"
model = "mockllm/model"
"""


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("TRAINCHECK_PILOT_AGENTS")
    if given:
        return Path(given)
    if shutil.which("npm") is None:
        pytest.skip("there is no npm to install the agents with")
    folder = tmp_path_factory.mktemp("agents")
    command = ["npm", "install", "--silent", "--no-fund", "--no-audit", *PACKAGES.values()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        pytest.skip(f"the agents can't be installed: {(done.stderr or done.stdout).strip()[-200:]}")
    return folder


@pytest.mark.parametrize("agent", PACKAGES)
def test_an_agent_with_a_command_line_works_in_the_jail(tmp_path: Path, agents: Path, agent: str) -> None:
    shutil.copytree(CASES / "tiny-accumulation", tmp_path / "tiny")
    (tmp_path / "draft.toml").write_text(DRAFT.format(agent=agent))
    plan = write(freeze(read_draft(tmp_path / "draft.toml"), tmp_path), tmp_path, tmp_path / "plan.json")
    pilot = running.prepare(tmp_path / "plan.json", tmp_path / "out", resume=False)
    layout, name = pilot.layout, plan.order[0].id
    layout.trial(name).mkdir(parents=True)
    with service(ledger=layout.device, store=layout.store, jobs=layout.jobs, devices=2) as socket:
        command = [sys.executable, "-m", "tests.pilot.cli_trial", str(layout.root), name, str(socket)]
        done = subprocess.run(
            command, cwd=Path(__file__).parents[2], env={**os.environ, TOOLS: str(agents)},
            capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr

    entries = list(read(layout.ledger(name)))
    objects = Objects(layout.store)
    answers = {
        entry.data["call"]: objects.get(entry.data["text"]).decode()
        for entry in entries
        if entry.kind == "tool_answered"
    }
    calls = [entry.data["call"] for entry in entries if entry.kind == "tool_called"]
    first, device, submitted, shell, again = (answers[call] for call in calls)
    assert "/mnt/work" in first
    assert "42" in device
    assert "recorded" in submitted
    assert "recorded" in again
    assert "No module named 'traincheck'" in shell
    assert not [name for name, value in os.environ.items() if len(value) > 20 and f"{name}={value}" in first]

    sources = [entry.data["source"] for entry in entries if entry.kind == "submitted"]
    assert sources[0] == sources[1] != sources[2]
    # What an agent keeps for itself (.claude, .codex) is in no source.
    assert set(objects.get_map(sources[2]).entries) == set(objects.get_map(sources[0]).entries)
    assert [entry.data["call"] for entry in entries if entry.kind == "submitted"][1:] == [calls[2], calls[4]]
    assert entries[-1].data["reason"] == "finished"
    assert [entry.data["leaks"] for entry in entries if entry.kind == "audited"] == [[], []]
    assert all(not entry.data["imported_at_exit"] for entry in entries if entry.kind == "attested")
    reconciled = json.loads((layout.trial(name) / "reconciled.json").read_text())
    assert reconciled["agree"], reconciled["differences"]

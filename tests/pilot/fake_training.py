"""A case whose program writes, without torch, what an observer would: a replay takes a tenth of a second.

Its ``train.py`` holds one word of behaviour (``right``, ``wrong``, ``late``, …), and its digests follow from it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CANARY = "traincheck-canary-fake-training-00"

PROGRAM = """
import json, os, signal, sys, time
BEHAVIOUR = "{behaviour}"
config = json.load(open(sys.argv[1]))
folder = os.path.join(os.environ["TRAINCHECK_REPLAY_RECORDS"], "1-1")
os.makedirs(folder)

def write(name, value):
    with open(os.path.join(folder, name), "w") as file:
        json.dump(value, file)

def state(word):
    return {{"parameters": {{"w": entry(word)}} if BEHAVIOUR != "empty" else {{}}, "buffers": {{}}, "masters": {{}}}}

def entry(word):
    return {{"sha256": word, "dtype": "float32", "shape": [2], "square": 1.0}}

wrong = BEHAVIOUR == "wrong" or (BEHAVIOUR == "designated" and config["designated"])
generation = {{"first": "a", "second": "b"}}.get(BEHAVIOUR, "right")
write("header.json", {{"schema": 1, "pid": 1, "rank": 0, "world_size": 1, "torch": "none"}})
for step in range(1, config["steps"] + 1):
    if BEHAVIOUR == "late" and step == 2:
        time.sleep(60)
    if BEHAVIOUR == "killed" and step == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if BEHAVIOUR == "short" and step == 2:
        break
    word = ("wrong" if wrong and step == 2 else generation) + str(step)
    write(f"step-{{step:06}}.json", {{
        "schema": 1, "step": step, "optimizer": 1, "inputs": [{{"x": "x" + str(step)}}], "before": state("b" + word),
        "gradients": {{"w": entry("g" + word) if BEHAVIOUR != "empty" else None}},
        "generators_before": {{"torch": "t"}}, "after": state("a" + word),
        "optimizer_state": {{}}, "generators_after": {{"torch": "t"}},
    }})
write("end.json", {{"steps": config["steps"], "rank": None, "pid": 1, "final": None}})
"""


def program(behaviour: str) -> str:
    return PROGRAM.format(behaviour=behaviour)


def case(folder: Path, name: str = "fake", **more: Any) -> Path:
    """A case of two healthy scenarios and a designated one; ``more`` goes over its fields."""
    healthy: dict[str, Any] = {"about": "All is well.", "steps": 3, "timeout_s": 4, "config": {"steps": 3}}
    scenarios = [
        {"name": "base", **healthy, "config": {"steps": 3, "designated": False}},
        {"name": "other", **healthy, "config": {"steps": 3, "designated": False}},
        {"name": "faulty", **healthy, "config": {"steps": 3, "designated": True}, "designated": True},
    ]
    fields = {
        "schema": 1, "name": name, "title": "A fake", "kind": "failure",
        "reproduction": "A program that writes what it is told to.", "devices": 1,
        "launch": ["{python}", "train.py", "{config}"], "canary": CANARY, "scenarios": scenarios, **more,
    }  # fmt: skip
    for place, behaviour in (
        ("workspace", "designated"),
        ("private/oracles/fixed", "right"),
        ("private/oracles/first", "first"),
        ("private/oracles/second", "second"),
        ("private/mutants/wrong", "wrong"),
    ):
        (folder / place).mkdir(parents=True)
        (folder / place / "train.py").write_text(program(behaviour))
    (folder / "task.md").write_text("Prepare this training for a long run.\n")
    (folder / "case.toml").write_text(_toml(fields))
    return folder


def _toml(fields: dict[str, Any]) -> str:
    """The little TOML that is needed: JSON's scalars and lists are TOML's."""
    lines, tables = [], []
    for key, value in fields.items():
        if key == "scenarios":
            tables = value
        else:
            lines.append(f"{key} = {json.dumps(value)}")
    for table in tables:
        lines.append("[[scenarios]]")
        for key, value in table.items():
            if isinstance(value, dict):
                inside = ", ".join(f"{name} = {json.dumps(item)}" for name, item in value.items())
                lines.append(f"{key} = {{ {inside} }}")
            else:
                lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join(lines) + "\n"

"""A real command-line agent with a scripted model: ``python -m tests.pilot.cli_trial DIR TRIAL SOCKET``.

The model's calls are named as the agent's own tools are; everything else is as in a trial with a real model.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from inspect_ai.model import Model, ModelOutput, ModelUsage, get_model

from traincheck.pilot.inspecting import trial
from traincheck.pilot.layout import Layout

STEPS = (
    ("shell", "pwd; ls; env; ls -A ~"),
    ("request_device", "python -c 'print(6 * 7)' || python3 -c 'print(6 * 7)'"),
    ("submit_revision", "as it is"),
    ("shell", "echo '# changed' >> train.py; python3 -c 'import traincheck'"),
    ("submit_revision", "changed"),
)
SHELLS = {"Bash": "command", "exec_command": "cmd", "shell_command": "command"}


def model(*_: Any) -> Model:
    steps = iter(STEPS)

    def answer(messages: list[Any], tools: list[Any], *_: Any) -> ModelOutput:
        names = [tool.name for tool in tools]
        output = ModelOutput.from_content("mockllm/model", "Done.")
        step = next(steps, None) if any(name in SHELLS for name in names) else None  # else a side question of the CLI
        if step is not None:
            output = ModelOutput.for_tool_call("mockllm/model", *named(step, names))
        output.usage = ModelUsage(input_tokens=10, input_tokens_cache_read=90, output_tokens=5, total_tokens=105)
        return output

    return get_model("mockllm/model", custom_outputs=answer, memoize=False)


def named(step: tuple[str, str], names: list[str]) -> tuple[str, dict[str, Any]]:
    what, text = step
    if what == "shell":
        name = next(name for name in names if name in SHELLS)
        return name, {SHELLS[name]: text, **({"description": "look"} if name == "Bash" else {})}
    name = next(name for name in names if name.endswith(what))
    return name, {"command": text, "devices": 1} if what == "request_device" else {"note": text}


if __name__ == "__main__":
    trial._model = model
    trial.run(Layout(Path(sys.argv[1])), sys.argv[2], Path(sys.argv[3]))

"""What the command line tests share: the list of commands, and an environment without surprises."""

from __future__ import annotations

import os

COMMANDS = (
    (),
    ("collect",),
    ("infer",),
    ("check",),
    ("doctor",),
    ("manual",),
    ("mcp",),
    ("trace",),
    ("trace", "show"),
    ("trace", "compact"),
    ("trace", "import"),
    ("trace", "diff"),
    ("invariants",),
    ("invariants", "show"),
    ("invariants", "filter"),
    ("invariants", "merge"),
    ("invariants", "diff"),
    ("invariants", "suppress"),
    ("pilot",),
    ("pilot", "plan"),
    ("pilot", "run"),
    ("pilot", "grade"),
    ("pilot", "qualify"),
    ("pilot", "replay"),
    ("pilot", "deviation"),
    ("pilot", "annotate"),
    ("pilot", "report"),
)


def plain_environment(**changes: str) -> dict[str, str]:
    """Our environment without what forces colours, with one thread."""
    forcing = ("FORCE_COLOR", "CLICOLOR_FORCE", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE", "COLUMNS")
    environment = {name: value for name, value in os.environ.items() if name not in forcing}
    return {**environment, "OMP_NUM_THREADS": "1", **changes}

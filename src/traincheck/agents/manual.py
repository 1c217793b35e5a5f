"""The manual for agents: one page, kept as Markdown beside this file."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

MOST_TOKENS: Final = 1500
"""What the page may cost its reader."""

DOCUMENTATION: Final = (
    ("docs/agents.md", "JSON answers, exit codes and the MCP server"),
    ("docs/activation.md", "how collection reaches a process, and what it leaves as it was"),
    ("docs/observing.md", "what is observed"),
    ("docs/relations.md", "which relations are known"),
    ("docs/design.md", "how it works"),
)
"""Pages of the repository, with what they are about."""


def for_agents() -> str:
    """The page, as Markdown."""
    return files("traincheck.agents").joinpath("manual.md").read_text(encoding="utf-8")


def for_people() -> str:
    """A few lines: what TrainCheck does, in which order, and where more is written."""
    width = max(len(page) for page, _ in DOCUMENTATION)
    pages = "\n".join(f"  {page.ljust(width)}  {about}" for page, about in DOCUMENTATION)
    return f"""TrainCheck learns what a healthy PyTorch training does, and says what broke in another.

  traincheck collect -o runs/good -- python train.py
  traincheck infer runs/good -o good.jsonl
  traincheck collect -o runs/new -- python train_changed.py
  traincheck check runs/new -i good.jsonl

Every command has --help with examples; `traincheck doctor` says what works here.
`traincheck manual --agent` prints the page for coding agents; `traincheck mcp` serves them over MCP.

In the repository:
{pages}
"""

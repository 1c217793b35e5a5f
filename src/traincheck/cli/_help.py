"""How help texts show examples."""

from __future__ import annotations


def examples(*commands: str) -> str:
    """An epilog listing commands, one a line."""
    # Typer joins the lines of a paragraph and keeps paragraphs apart, hence the empty lines; "[" would be markup.
    return "\n\n".join(["Examples:", *(f"  $ {command}".replace("[", r"\[") for command in commands)])

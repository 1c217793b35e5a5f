"""``traincheck doctor``: what works on this machine."""

from __future__ import annotations

import typer

from traincheck.cli._help import examples
from traincheck.cli._options import Json


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(name="doctor", epilog=examples("traincheck doctor", "traincheck doctor --json"))(doctor)


def doctor(as_json: Json = False) -> None:
    """Say what works on this machine, what does not, and why.

    Ends with 0 unless something that TrainCheck cannot do without is missing or broken.
    """
    from traincheck.cli import _output
    from traincheck.doctor import examine
    from traincheck.errors import OWN_FAILURE

    with _output.working("looking around"):
        report = examine()
    if as_json:
        _output.print_json(report.as_dict())
    else:
        from rich.text import Text

        styles = {"works": "green", "absent": "dim", "broken": "bold red"}
        width = max(len(part.name) for part in report.parts)
        console = _output.stdout()
        for part in report.parts:
            line = Text.assemble(part.name.ljust(width + 2), (part.state.ljust(8), styles[part.state]), part.detail)
            console.print(line, soft_wrap=True)
        _output.say()
        _output.say(report.verdict)
    if not report.usable:
        raise typer.Exit(OWN_FAILURE)

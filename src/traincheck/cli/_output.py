"""What commands print, and where: results to standard output, everything else to standard error.

Colours and progress bars only on a terminal (``NO_COLOR`` respected); ``--json`` is nothing but JSON. A reader that
goes away (``| head``) is not an error: the command ends with the code it would have had.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def prepare() -> None:
    """Characters that the terminal or the locale has not are printed as escapes, and end nothing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def stdout() -> Console:
    """A Rich console on standard output: wraps to the terminal, and not at all when piped."""
    return _console(sys.stdout)


def stderr() -> Console:
    """A Rich console on standard error."""
    return _console(sys.stderr)


def _console(stream: IO[str] | None) -> Console:
    from rich.console import Console

    if stream is None:  # closed before we came
        return Console(file=io.StringIO(), highlight=False, emoji=False)

    class Patient(Console):
        def on_broken_pipe(self) -> None:
            _discard(stream)

    terminal = stream.isatty()
    # A pipe has no width: 80 columns would cut names that people grep for.
    return Patient(file=stream, highlight=False, emoji=False, width=None if terminal else 1000, soft_wrap=not terminal)


def say(text: str = "") -> None:
    """A plain line on standard output, never wrapped or coloured."""
    _write(sys.stdout, text + "\n")


def heading(text: str) -> None:
    """A bold line on standard output, with an empty line before it."""
    from rich.text import Text

    stdout().print(Text(f"\n{text}", style="bold"), soft_wrap=True)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Aligned columns on standard output; ``>`` before a header flushes its column right."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for header in headers:
        grid.add_column(
            header.removeprefix(">"), justify="right" if header.startswith(">") else "left", overflow="fold"
        )
    for row in rows:
        grid.add_row(*(Text(cell(value)) for value in row))
    console = stdout()
    with console.capture() as captured:
        console.print(grid)
    say("\n".join(line.rstrip() for line in captured.get().splitlines()))


def cell(value: object) -> str:
    """A value as the text of a table cell: ``12,345``, ``0.012``, ``-`` for None."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


def note(text: str) -> None:
    """A plain line on standard error."""
    _write(sys.stderr, text + "\n")


def print_json(value: Any) -> None:
    """``value`` as one JSON document on standard output. NaN and infinity, which JSON has not, become strings."""
    from traincheck.strictjson import dumps

    _write(sys.stdout, dumps(value, encoding=getattr(sys.stdout, "encoding", None) or "utf-8"))


def error(message: str, hint: str | None = None) -> None:
    """``error: …`` and ``try: …`` on standard error."""
    from rich.text import Text

    console = stderr()
    console.print(Text.assemble(("error:", "bold red"), " ", message), soft_wrap=True)
    if hint:
        console.print(Text.assemble(("try:", "bold"), " ", hint), soft_wrap=True)


def traceback() -> None:
    """The traceback of the exception being handled, on standard error."""
    import traceback as tb

    _write(sys.stderr, tb.format_exc())


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """A spinner with ``what`` and the time it takes on standard error; nothing without a terminal.

    Gives a function that changes the text.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=stderr(), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda text: progress.update(task, description=text)


@contextmanager
def progress(what: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar with ``what`` on standard error; nothing without a terminal.

    Gives a function of what is being done, how many parts are done, and of how many.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda text, done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=stderr(), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda text, done, total: bar.update(task, description=text, completed=done, total=total)


def flush() -> None:
    """Write out what is buffered, so that a reader that went away is noticed here and not by the interpreter's exit."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:  # closed before we came
            continue
        try:
            stream.flush()
        except BrokenPipeError:
            _discard(stream)
        except (OSError, ValueError):
            pass


def _write(stream: IO[str] | None, text: str) -> None:
    if stream is None:
        return
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        _discard(stream)


def _discard(stream: IO[str] | None) -> None:
    if stream is None:
        return
    try:
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)
    except (OSError, ValueError):
        pass

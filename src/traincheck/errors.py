"""Errors a user may meet. Each is printed as a sentence and says in its docstring what to do about it."""

from __future__ import annotations

from typing import ClassVar


class TraincheckError(Exception):
    """Something the user can act on: what was expected, what was found, what to try next.

    The command line prints the message without a traceback and leaves with ``exit_code``.
    """

    exit_code: ClassVar[int] = 2


class TraceError(TraincheckError):
    """A trace cannot be read, written or converted.

    Remedy: point at the folder that ``traincheck collect -o RUN`` made (it holds ``processes/`` or ``compact/``);
    import a TrainCheck 0.x folder first with ``traincheck trace import DIR -o RUN``; read a newer trace with a newer
    TrainCheck.
    """

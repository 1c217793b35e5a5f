"""What TrainCheck says when it cannot go on: one sentence, what to try, and an exit code.

Standard library only: this is imported in the user's training process too.
"""

from __future__ import annotations

from typing import Final

OWN_FAILURE: Final = 1
"""Exit code of a fault of ours."""

BAD_INPUT: Final = 2
"""Exit code of wrong usage and of input that cannot be used."""

VIOLATIONS: Final = 3
"""Exit code of a check that found violations, and of a diff that found a difference."""


class TraincheckError(Exception):
    """Something expected went wrong. The command line prints it as ``error: message`` and ``try: hint``.

    ``message`` is one sentence: what was expected and what was found. ``hint`` is the next thing to try, or None.
    ``exit_code`` is 2 (the input) unless the fault is ours (1).
    """

    def __init__(self, message: str, hint: str | None = None, exit_code: int = BAD_INPUT) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code


class TraceError(TraincheckError):
    """A trace cannot be read, written or converted.

    Remedy: point at the folder that ``traincheck collect -o RUN`` made (it holds ``processes/`` or ``compact/``);
    read a trace of a newer version with a newer TrainCheck.
    """

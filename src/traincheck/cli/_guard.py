"""The one place where errors become sentences and exit codes.

0 done, 1 our own failure, 2 wrong usage or bad input, 3 violations or differences, 130 interrupted.
``collect`` alone ends with the program's own code.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from traincheck.cli import _output
from traincheck.errors import BAD_INPUT, OWN_FAILURE, TraincheckError


class Commands(TyperGroup):
    """A group of commands whose failures are told in one form: ``error: …`` and ``try: …`` on standard error."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, then exit with the code of what happened."""
        _output.prepare()
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except typer.Abort:
            code = 130
        except SystemExit as error:
            # Rich, which prints the help texts, ends the program with 1 when its reader goes away.
            code = 0 if isinstance(error.__context__, BrokenPipeError) else error.code
        except BrokenPipeError:
            code = 0
        except Exception as error:
            if not _is_usage(error):
                raise
            code = _tell_usage(error)
        _output.flush()
        if not standalone_mode:
            return code
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run one command; an exception becomes its exit code."""
        try:
            return super().invoke(ctx)
        except TraincheckError as error:
            _output.error(error.message, error.hint)
            if _debug(ctx):
                _output.traceback()
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt as error:
            _output.error("interrupted")
            raise typer.Exit(130) from error
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if _is_usage(error):
                raise
            debug = _debug(ctx)
            if isinstance(error, OSError) and error.filename is not None:
                # A file or folder that cannot be used: the reader needs its name, and no stack.
                _output.error(f"cannot use {error.filename}: {error.strerror or error}", _remedy(error))
                if debug:
                    _output.traceback()
                raise typer.Exit(BAD_INPUT if isinstance(error, _UNUSABLE) else OWN_FAILURE) from error
            if isinstance(error, OSError) and error.errno in _FULL:
                # No file of ours, which would have its name: the results could not be printed.
                _output.error(f"cannot write the results: {error.strerror}", _remedy(error))
                if debug:
                    _output.traceback()
                raise typer.Exit(OWN_FAILURE) from error
            text = " ".join(str(error).split())
            _output.error(
                f"TrainCheck failed: {type(error).__name__}" + (f": {text}" if text else ""),
                None if debug else "the same command as `traincheck --debug …` shows where; please report it",
            )
            if debug:
                _output.traceback()
            raise typer.Exit(OWN_FAILURE) from error


def _debug(ctx: Any) -> bool:
    return bool(ctx.find_root().params.get("debug"))


_FULL = (errno.ENOSPC, errno.EDQUOT)
_UNUSABLE = (PermissionError, FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)


def _remedy(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "another folder, or other permissions"
    return "free space, or another disk" if error.errno in _FULL else "another path"


def _is_usage(error: Exception) -> bool:
    # Typer carries its own copy of Click since 0.2x: known by shape, so that both generations work.
    return hasattr(error, "format_message") and hasattr(error, "show")


def _tell_usage(error: Any) -> int:
    message = error.format_message()
    if not message:  # "no arguments: help was printed"
        return int(getattr(error, "exit_code", BAD_INPUT))
    ctx = getattr(error, "ctx", None)
    command = ctx.command_path if ctx is not None else "traincheck"
    _output.error(message[:1].lower() + message[1:].rstrip("."), f"{command} --help")
    return BAD_INPUT

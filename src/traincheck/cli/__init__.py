"""The command line: one file per command, thin over the Python API. Nothing else imports this.

A command's file declares its options and imports what it runs inside its function, so that help stays fast.
"""

from traincheck.cli.app import app, main

__all__ = ["app", "main"]

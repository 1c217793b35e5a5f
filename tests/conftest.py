"""What holds for all tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Signals as from a terminal. ``nohup``, and ``&`` in a script, have them ignored by all that is started."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
        (signal.SIGTERM, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)

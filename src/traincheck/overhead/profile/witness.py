"""The witness: in one step that is not timed, every function of TrainCheck's must run at its component's cost.

Python tells it of each function entered on the training thread; the ledger tells what is being paid for. Own code that
is paid for by the application, or by another component, is named: then an entrance is missing, and the profile wrong.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from traincheck.overhead.profile import components
from traincheck.overhead.profile.components import APPLICATION, TIMED
from traincheck.overhead.profile.ledger import Ledger


class Witness:
    """Watches the calling thread from ``begin`` to ``end``."""

    def __init__(self, ledger: Ledger, module_of: Callable[[str], str | None] = components.module_of) -> None:
        self._ledger = ledger
        self._module_of = module_of
        self._files: dict[str, str | None] = {}
        self.seen = 0
        """Calls of own functions."""
        self.faults: Counter[str] = Counter()

    def begin(self) -> None:
        """Look from here on."""
        self._opened = self._ledger.books().open
        sys.setprofile(self._look)

    def end(self) -> None:
        """Look no more."""
        sys.setprofile(None)

    def _look(self, frame: Any, event: str, _: Any) -> None:
        if event != "call":
            return
        file = frame.f_code.co_filename
        try:
            module = self._files[file]
        except KeyError:
            module = self._files[file] = self._module_of(file)
        if module is None:
            return
        self.seen += 1
        function = frame.f_code.co_name
        if components.anywhere(module, function):
            return
        payer = TIMED[self._opened[-1]]
        component = components.component_of(module, function)
        if component is None:
            self.faults[f"{module}.{function} is in no component"] += 1
        elif component != payer:
            who = "is taken for the application's" if payer == APPLICATION else f"is paid for by {payer}"
            self.faults[f"{module}.{function} ({component}) {who}"] += 1

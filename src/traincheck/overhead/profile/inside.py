"""The training process of a profile: the study's training program, watched in some steps and not in others.

``profile_train.py TASK.json``, started without the launcher: the session is started here, at the moment at which the
launcher's boot starts it (torch has been imported, nothing else), after the ledger has been put in front of it. Writes
``profile.json`` beside what every trial writes.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from threading import get_ident
from typing import Any

SCHEMA = 1
FILE = "profile.json"


class Inside:
    """One profiled run. ``task``: that of a trial, with ``profile``: ``run`` (folder of the trace), ``accounted``
    (whether the ledger is kept), ``kinds`` (of the steps).
    """

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.asked: dict[str, Any] = task["profile"]
        self.rows: list[dict[str, Any]] = []
        self.told: dict[str, Any] = {"schema": SCHEMA, "accounted": self.asked["accounted"], "ident": get_ident()}

    def run(self, task_file: str) -> None:
        """Test the ledger, start the session, train, calibrate, write. Raises RuntimeError when the test fails."""
        import torch  # noqa: F401  (a session starts when it is there)

        from traincheck.collect import _probe, activation, session
        from traincheck.overhead.profile import calibrate, selftest, windows
        from traincheck.overhead.profile.components import TIMED
        from traincheck.overhead.profile.ledger import Ledger, span_cost
        from traincheck.overhead.profile.witness import Witness

        self.ledger: Ledger | None = None
        self.witness: Witness | None = None
        if self.asked["accounted"]:
            self.ledger = Ledger()
            self.told["self_test"] = selftest.self_test(self.ledger)
            self.told["span"] = span_cost(self.ledger)
            self.ledger.install()
            self.witness = Witness(self.ledger)
        self.probe = _probe
        began, process = time.thread_time_ns(), time.process_time_ns()
        self.session: session.Session | None = activation.start(self.asked["run"])
        if self.session is None:
            raise RuntimeError(f"no session could be started in {self.asked['run']}: the note there says why")
        self.told["installation"] = {
            "thread_s": (time.thread_time_ns() - began) / 1e9,
            "process_s": (time.process_time_ns() - process) / 1e9,
        }
        self._train(task_file)
        _probe.resume()
        if self.ledger is not None and self.witness is not None:
            others = self.ledger.others()
            everything = self.session.plan.scope != "selective"
            self.told["calibration"] = calibrate.Core(self.session.recorder, everything).figures()
            self.told |= {
                "components": list(TIMED),
                "span_after": span_cost(self.ledger),
                "background_s": others,
                "witness": {
                    "steps": sum(row["kind"] == windows.WITNESSED for row in self.rows),
                    "calls": self.witness.seen,
                    "faults": dict(self.witness.faults),
                },
            }
        self.told |= {"windows": self.rows, "process": Path(self.session.folder).name}
        Path(self.task["out"], FILE).write_text(json.dumps(self.told))

    def _train(self, task_file: str) -> None:
        from overhead_program import main, steps  # type: ignore[import-not-found]

        profiled = self

        class Windows(steps.Steps):  # type: ignore[misc]
            """The program's own clock, with a window in it."""

            def begin(self) -> None:
                kind = profiled.switch()
                super().begin()
                profiled.begin(kind)

            def end(self, failed: bool = False) -> None:
                profiled.end()
                super().end(failed)

        steps.Steps = Windows
        self.off = False
        try:
            main.run(task_file)
        finally:
            self._watch(True)

    # --- steps -------------------------------------------------------------------------------------------------------

    def switch(self) -> str:
        """Put probes on or off for the next step; gives its kind."""
        from traincheck.overhead.profile import windows

        kind: str = self.asked["kinds"][len(self.rows)]
        self._watch(windows.watched(kind))
        return kind

    def _watch(self, on: bool) -> None:
        session = self.session
        assert session is not None
        if on != self.off:
            return
        self.off = not on
        if on:
            self.probe.unmute()
            session._installer.put_on(lambda placement: session.observing or placement.driver)
        else:
            session._installer.take_off(lambda _: True)
            self.probe.mute()  # copies of probes that the program holds pass through

    def begin(self, kind: str) -> None:
        """The step's work begins."""
        from traincheck.overhead.profile import windows

        if kind == windows.WITNESSED and self.witness is not None:
            self.witness.begin()
        self._window = windows.Window(kind, self.probe.records(), self.ledger)

    def end(self) -> None:
        """It is done."""
        self.rows.append(self._window.end(self.probe.records()))
        if self.witness is not None:
            self.witness.end()


def main() -> None:
    """Run the task file that the command line names."""
    file = sys.argv[-1]
    Inside(json.loads(Path(file).read_text())).run(file)

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.probe import decode
from traincheck.collect import _probe


class Recording:
    """A recorder open in a temporary folder; reading it back closes it first."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.symbols = decode.Symbols()

    def calls(self) -> list[decode.Call]:
        _probe.close()
        return decode.calls(self.directory)

    def records(self) -> list[decode.Record]:
        _probe.close()
        return list(decode.records(self.directory))

    def captured(self, call: decode.Call) -> dict[str | int, Any]:
        """Captures of a call by path (those a probe named itself) or by the id given to the probe."""
        named: dict[str | int, Any] = {}
        for capture in call.captures:
            kind, description = self.symbols.by_id.get(capture[0], (0, None))
            key = description[2] if kind == 101 else capture[0]
            named[key] = self.symbols.value(capture)
        return named


OpenRecording = Callable[..., Recording]


@pytest.fixture
def open_recording(tmp_path: Path) -> Iterator[OpenRecording]:
    number = 0

    def start(segment_bytes: int = 1 << 20, clock: int = -1) -> Recording:
        nonlocal number
        directory = tmp_path / f"recording-{number}"
        directory.mkdir()
        number += 1
        recording = Recording(directory)
        _probe.open(str(directory), segment_bytes, recording.symbols, clock)
        return recording

    yield start
    _probe.close()
    assert _probe.muted() == 0


@pytest.fixture
def recording(open_recording: OpenRecording) -> Recording:
    return open_recording()

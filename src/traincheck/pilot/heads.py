"""The last hash of every closed ledger, kept apart from the ledgers: what shows that the end of one was cut off."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from traincheck.errors import TraincheckError
from traincheck.files import write_whole
from traincheck.pilot.ledger import ORIGIN, LedgerError, read


def recorded(heads: Path) -> dict[str, str]:
    """Ledger (relative to the folder of ``heads``) -> hash; empty without such a file. Raises TraincheckError."""
    try:
        found = json.loads(heads.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise TraincheckError(f"{heads} is not JSON: {error}", "restore it from where it was copied from") from error
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise TraincheckError(f"{heads} does not map ledgers to hashes", "restore it from where it was copied from")
    return found


def record(heads: Path, ledger: Path, head: str) -> None:
    """Add the head of a ledger that is closed now; others may do so at the same time. Raises OSError."""
    folder = heads.resolve().parent
    name = ledger.resolve().relative_to(folder).as_posix()
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_whole({heads: json.dumps({**recorded(heads), name: head}, indent=1, sort_keys=True) + "\n"})
    finally:
        os.close(lock)


def problems(heads: Path) -> Iterator[str]:
    """One sentence on each ledger that is missing, broken, or does not end with the recorded hash."""
    for name, head in recorded(heads).items():
        path = heads.parent / name
        last = ORIGIN
        try:
            for entry in read(path):
                last = entry.hash
        except FileNotFoundError:
            yield f"{name}: the ledger is missing"
        except LedgerError as error:
            yield f"{name}: {error.message}"
        else:
            if last != head:
                yield f"{name}: the ledger does not end with the recorded entry, it was cut off or went on"

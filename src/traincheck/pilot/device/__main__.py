"""``python -m traincheck.pilot.device``: run the device service until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from traincheck.errors import TraincheckError
from traincheck.pilot.device.broker import Settings
from traincheck.pilot.device.server import serve


def main() -> int:
    """Read the options and serve; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m traincheck.pilot.device", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True, help="socket to listen at")
    parser.add_argument("--ledger", type=Path, required=True, help="ledger to write, or to go on with")
    parser.add_argument("--store", type=Path, required=True, help="objects and source maps")
    parser.add_argument("--jobs", type=Path, required=True, help="folder for the output of jobs")
    parser.add_argument("--devices", type=int, required=True, help="how many devices there are")
    parser.add_argument("--kind", choices=("cpu", "gpu"), default="cpu", help="slots of CPU, or GPUs by their ids")
    parser.add_argument("--ids", help="ids of the GPUs, e.g. 0,2; default: the first that this process may see")
    parser.add_argument("--file-limit", type=int, default=1 << 30, help="bytes of the largest file a job may write")
    parser.add_argument("--until-stdin-ends", action="store_true", help="stop when stdin is closed, too")
    given = parser.parse_args()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") if given.kind == "gpu" else None
    try:
        listed = [int(word) for word in (given.ids or visible or "").split(",") if word]
    except ValueError:
        parser.error(f"ids of devices are numbers with commas between them, found {given.ids or visible!r}")
    ids = tuple(listed if given.ids else (listed or range(given.devices))[: given.devices])
    if given.devices < 1 or len(set(ids)) != given.devices:
        parser.error(f"--devices {given.devices} does not fit the ids {ids}")
    settings = Settings(
        ledger=given.ledger.resolve(),
        store=given.store.resolve(),
        jobs=given.jobs.resolve(),
        ids=ids,
        kind=given.kind,
        file_limit=given.file_limit,
    )
    try:
        asyncio.run(serve(given.socket, settings, until_stdin_ends=given.until_stdin_ends))
    except TraincheckError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"try: {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

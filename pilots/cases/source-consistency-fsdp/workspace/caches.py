"""The nodes' download caches, laid out as the hub's client does it: ``refs/main`` names a folder of ``snapshots``."""

import json
import os
from pathlib import Path

import hub


def cache_of(node: int) -> Path:
    """Where a node keeps what it downloaded of the model."""
    return Path("out") / f"node{node}" / "hub" / f"models--{hub.NAME.replace('/', '--')}"


def fill(config: Path) -> None:
    """What this rank's node did before the job, on its day of ``downloads``: download ``main``, unless it has it."""
    node = int(os.environ["RANK"])
    revision = hub.main_on(json.loads(config.read_text(encoding="utf-8"))["downloads"][node])
    snapshot, reference = cache_of(node) / "snapshots" / revision, cache_of(node) / "refs" / "main"
    if not (snapshot / "config.json").exists():
        hub.weights(revision).save_pretrained(snapshot)
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(revision)

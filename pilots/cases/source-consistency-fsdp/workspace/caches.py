"""The nodes' download caches, laid out as the hub's client does it: ``refs/main`` names a folder of ``snapshots``."""

from pathlib import Path

import hub


def cache_of(node: int) -> Path:
    """Where a node keeps what it downloaded of the model."""
    return Path("out") / f"node{node}" / "hub" / f"models--{hub.NAME.replace('/', '--')}"


def fill(node: int, day: str) -> None:
    """What the node did on that day: download ``main``. A cache that holds that already is left alone."""
    cache, revision = cache_of(node), hub.main_on(day)
    snapshot, reference = cache / "snapshots" / revision, cache / "refs" / "main"
    if not (snapshot / "config.json").exists():
        hub.weights(revision).save_pretrained(snapshot)
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(revision)

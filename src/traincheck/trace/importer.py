"""c"""

from pathlib import Path


def is_compact(root: Path) -> bool:
    return False


def is_old_trace(root):
    return False

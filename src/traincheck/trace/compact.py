"""c"""

from pathlib import Path


def is_compact(root: Path) -> bool:
    return False

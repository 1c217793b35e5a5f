"""canary-source-consistency-2d7f4a18c95b4be0: tensors of the trained model by revision; do ranks agree on it?

python qualify.py CASE OUT
"""

import json
import sys
from pathlib import Path

from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.showing import shown

HALVES = {"a": 38, "b": 38, "mixed inside": 0, "neither": 0}
ALL_A = {**HALVES, "a": 76, "b": 0}
ALL_B = {**HALVES, "a": 0, "b": 76}
RUNS = (
    ("fault, mixed", "mixed", None, HALVES),
    ("fault, swapped", "swapped", None, HALVES),
    ("fault, same-a", "same-a", None, ALL_A),
    ("fault, same-b", "same-b", None, ALL_B),
    ("fault, one-node", "one-node", None, ALL_B),
    ("fix, mixed", "mixed", "alternatives/broadcast", ALL_A),
    ("fix, swapped", "swapped", "alternatives/broadcast", ALL_B),
    ("fix by the last rank, mixed", "mixed", "alternatives/broadcast-last", ALL_B),
)


def main() -> None:
    """Write the numbers."""
    case, out = CaseFolder(Path(sys.argv[1])), Path(sys.argv[2])
    numbers, checks = [], []
    for name, scenario, overlay, origin in RUNS:
        ranks = shown(case, case.private / "probe.py", scenario, overlay)
        found = ranks[0]["origin"]
        agree = all(len(set(hashes)) == 1 for hashes in zip(*(rank["models"] for rank in ranks), strict=True))
        size = (ranks[0]["parameters"], ranks[0]["tensors"])
        for what, value, unit in (
            ("parameters", size[0], f"in {size[1]} tensors"),
            ("tensors by revision", found, "of the sharded model"),
            ("hash of what was loaded", [rank["loaded"] for rank in ranks], "by rank"),
            ("hash of the full model", [rank["models"] for rank in ranks], "by rank: sharded, then after each update"),
        ):
            numbers.append({"name": f"{name}: {what}", "value": _value(value), "unit": unit})
        for what, wanted, got in (
            ("size", (14_067_712, 76), size),
            ("tensors by revision", origin, found),
            ("ranks agree on the full model", True, agree),
        ):
            checks.append({"name": f"{what}: {name}", "wanted": f"{wanted}", "found": f"{got}", "holds": got == wanted})
    (out / "numbers.json").write_text(json.dumps({"numbers": numbers, "checks": checks}, indent=1) + "\n")


def _value(found):
    """Numbers and words as they are, lists and tables as text."""
    return json.dumps(found).replace('"', "") if isinstance(found, (list, dict)) else found


if __name__ == "__main__":
    main()

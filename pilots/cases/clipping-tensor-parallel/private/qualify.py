"""canary-clipping-5b0e9d7c41fa4d2e: parameters held by all ranks that differ between them, after each step.

python qualify.py CASE OUT
"""

import json
import sys
from pathlib import Path

from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.showing import shown

RUNS = (
    ("fault, base", "base", None, True),
    ("fault, fresh-seed", "fresh-seed", None, True),
    ("fix, base", "base", "oracles/fixed", False),
    ("fix, fresh-seed", "fresh-seed", "oracles/fixed", False),
    ("fault, tp1", "tp1", None, False),
    ("fault, clipping-disabled", "clipping-disabled", None, False),
)


def main() -> None:
    """Write the numbers."""
    case, out = CaseFolder(Path(sys.argv[1])), Path(sys.argv[2])
    numbers, checks = [], []
    for name, scenario, overlay, faulty in RUNS:
        first = shown(case, case.private / "probe.py", scenario, overlay)[0]
        differ = [step["differ"] for step in first["steps"]]
        held = first["shared_parameters"]
        for what, value, unit in (
            ("parameters that differ between ranks, after each step", differ, f"of {held} held by all ranks"),
            ("largest difference", [step["largest"] for step in first["steps"]], "after each step"),
            ("norm before clipping", [round(step["norm"], 4) for step in first["steps"]], "at each step"),
            ("differ after the first step", first["steps"][0]["examples"], "for example"),
        ):
            numbers.append({"name": f"{name}: {what}", "value": _value(value), "unit": unit})
        holds = all(differ) if faulty else not any(differ)
        wanted = "some after each step" if faulty else "none at any step"
        checks.append({"name": f"copies that differ: {name}", "wanted": wanted, "found": f"{differ}", "holds": holds})
    (out / "numbers.json").write_text(json.dumps({"numbers": numbers, "checks": checks}, indent=1) + "\n")


def _value(found):
    """Numbers and words as they are, lists and tables as text."""
    return json.dumps(found).replace('"', "") if isinstance(found, (list, dict)) else found


if __name__ == "__main__":
    main()

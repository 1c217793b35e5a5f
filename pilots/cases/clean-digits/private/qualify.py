"""canary-clean-digits-e80b57a1c6d94f23: relative L2 error of the first update's gradient; do ranks agree?

python qualify.py CASE OUT
"""

import json
import sys
from pathlib import Path

from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.showing import shown


def main() -> None:
    """Write the numbers."""
    case, out = CaseFolder(Path(sys.argv[1])), Path(sys.argv[2])
    numbers, checks = [], []
    for scenario in case.case.scenarios:
        ranks = shown(case, case.private / "probe.py", scenario.name)
        error, models = ranks[0]["error"], {rank["model"] for rank in ranks}
        numbers += [
            {
                "name": f"gradient error, {scenario.name}",
                "value": error,
                "unit": "relative L2 against one pass over all examples, update 1",
            },
            {
                "name": f"examples, {scenario.name}",
                "value": str(ranks[0]["parts"]),
                "unit": "per rank and pass, update 1",
            },
        ]
        checks += [
            {
                "name": f"gradient error, {scenario.name}",
                "wanted": "below 1e-6",
                "found": f"{error:.3g}",
                "holds": error < 1e-6,
            },
            {
                "name": f"weights of the ranks after training, {scenario.name}",
                "wanted": "the same bits",
                "found": "the same bits" if len(models) == 1 else "other bits",
                "holds": len(models) == 1,
            },
        ]
    (out / "numbers.json").write_text(json.dumps({"numbers": numbers, "checks": checks}, indent=1) + "\n")


if __name__ == "__main__":
    main()

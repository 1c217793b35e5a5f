"""canary-token-average-93c2b6f0ad1e4877: relative L2 error of the first update's gradient; do ranks agree?

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
        sources = (("fault", None), ("fix", "oracles/fixed")) if scenario.designated else (("fault", None),)
        for source, overlay in sources:
            ranks = shown(case, case.private / "probe.py", scenario.name, overlay)
            name, error = f"{source}, {scenario.name}", ranks[0]["error"]
            agree = all(len({rank[what] for rank in ranks}) == 1 for what in ("gradients", "parameters"))
            for what, value, unit in (
                ("gradient error", error, "relative L2 against one mean over all answer tokens, update 1"),
                ("gradient norm", round(ranks[0]["norm_ratio"], 4), "of the right one, update 1"),
                ("answer tokens", ranks[0]["tokens"], "per rank and pass, update 1"),
                ("losses", [round(loss, 4) for loss in ranks[0]["losses"]], "as logged"),
            ):
                numbers.append({"name": f"{name}: {what}", "value": _value(value), "unit": unit})
            faulty = source == "fault" and scenario.designated
            checks.append(
                {
                    "name": f"gradient error: {name}",
                    "wanted": "above 0.1" if faulty else "below 1e-6",
                    "found": f"{error:.3g}",
                    "holds": error > 0.1 if faulty else error < 1e-6,
                }
            )
            checks.append(
                {
                    "name": f"gradients and weights of the ranks: {name}",
                    "wanted": "the same bits",
                    "found": "the same bits" if agree else "other bits",
                    "holds": agree,
                }
            )
    (out / "numbers.json").write_text(json.dumps({"numbers": numbers, "checks": checks}, indent=1) + "\n")


def _value(found):
    """Numbers and words as they are, lists and tables as text."""
    return json.dumps(found).replace('"', "") if isinstance(found, (list, dict)) else found


if __name__ == "__main__":
    main()

"""False alarms: what one healthy run teaches, held against healthy reruns that differ in one thing each.

Run ``python benchmarks/false_alarms.py`` (with transformers for the GPT-2 programs). Each cell: violated / applied
invariants, in full and in selective form (``collect -i``). Then two programs together against others never seen.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.collect.running import has
from tests.real.running import RERUNS, Runs

from traincheck.check import Result, check

THIRD = ("lstm", "mlp")


def cell(result: Result) -> tuple[int, int, int]:
    """(violated or in error, applied, not observable)."""
    summary = result.summary
    wrong = summary["violated"] + summary["error"]
    return wrong, summary["passed"] + wrong, summary["not_observable"]


def texts(result: Result) -> list[str]:
    """What was violated, in words."""
    return [f"{o.outcome}: {o.text}" for o in result.outcomes if o.outcome in ("violated", "error")]


def main() -> int:
    """Print the matrix; exit 1 when there was a false alarm in a rerun of the same program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", help="of: " + ", ".join(RERUNS))
    parser.add_argument("--folder", type=Path, help="keep the runs here, and use those that are here")
    parser.add_argument("--no-selective", action="store_true", help="full form only")
    arguments = parser.parse_args()
    chosen = arguments.programs or [name for name in RERUNS if has("transformers") or not name.startswith("gpt2")]
    alarms = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        runs = Runs(folder.resolve())
        print(f"{'program':<13} {'rerun':<15} {'full':>12} {'selective':>12}   violated / applied")
        for program in chosen:
            total = len(runs.learned(program))
            print(f"{program:<13} {'(learned)':<15} {total:>12}")
            for name, options in RERUNS[program].items():
                results = [runs.rerun(program, *options)]
                if not arguments.no_selective:
                    results.append(runs.rerun(program, *options, selective=True))
                cells = [cell(result) for result in results]
                print(f"{'':<13} {name:<15} " + " ".join(f"{wrong:>5} / {applied:<4}" for wrong, applied, _ in cells))
                alarms += sum(wrong for wrong, _, _ in cells)
                for text in dict.fromkeys(text for result in results for text in texts(result)):
                    print(f"{'':<13}   ! {text}")
        pair = ("digits_cnn", "gpt2_trainer")
        if all(name in chosen for name in pair):
            rules = runs.rules(*pair)
            print(f"\nlearned of {' and '.join(pair)} ({len(runs.learned(*pair))}), on programs never seen")
            for name in THIRD:
                result = check(runs.collect(name), rules)
                wrong, applied, _ = cell(result)
                print(f"{name:<13} {wrong} of {applied} applied ({100 * wrong / max(applied, 1):.2f} %)")
                for text in texts(result):
                    print(f"{'':<13}   ! {text}")
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())

"""Our verdicts beside those of TrainCheck 0.x, invariant by invariant, and the documented fault behind each difference.

``python -m tests.verdicts.comparing`` prints the table of ``docs/verdicts.md``.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from traincheck.check import Outcome, Result, check
from traincheck.invariants import APIParam, Invariant, load_invariants
from traincheck.trace import open_trace

DATA: Final = Path(__file__).parent.parent / "data" / "verdicts"
OLD: Final = DATA / "traincheck-0.2.0"

AS_0X: Final = {"passed": "passed", "violated": "failed", "dormant": "not_triggered"}
"""Our words for what 0.x could say. It knew neither ``not_observable`` nor ``error``."""


@dataclass(frozen=True)
class Comparison:
    """One set of invariants on one run: what 0.x said and what we say, line by line."""

    name: str
    said: tuple[str | None, ...]
    """None: what it said of this trace is not known."""
    result: Result

    def differences(self) -> Iterator[tuple[int, str, Outcome, Invariant]]:
        """(line, what 0.x said, our outcome, the invariant) where they differ."""
        for outcome, said in zip(self.result.outcomes, self.said, strict=True):
            if said is not None and AS_0X.get(outcome.outcome, outcome.outcome) != said:
                yield outcome.index, said, outcome, self.result.invariants[outcome.index]


# --- what 0.x said ---------------------------------------------------------------------------------------------------


def given() -> dict[str, tuple[Path, Path, dict[str, list[int]]]]:
    """name -> (trace, invariant file, verdicts) of the published and reproduced errors."""
    known = json.loads((DATA / "verdicts.json").read_text())
    cases = {
        name: (DATA / "published" / name / "trace", DATA / "published" / name / "invariants.json", case["expected"])
        for name, case in known["published"].items()
    }
    for name, case in known["reproduced"].items():
        for file, verdicts in case["sets"].items():
            folder = DATA / "reproduced" / name
            cases[f"{name}/{file}"] = (folder / "trace", folder / file, verdicts["expected"])
    return cases


def of_its_own_reference(name: str, file: str) -> Comparison:
    """A trace of 0.x against what 0.x learned of it: all held there, by its own account."""
    with tempfile.TemporaryDirectory() as scratch:
        path = _unpacked(OLD / file, Path(scratch))
        trace = open_trace(OLD / name)
        done = trace.calls.filter(pl.col("end_seq").is_not_null())
        called = set(done["function"].cast(pl.String).unique().to_list())
        invariants = load_invariants(path)
        return Comparison(name, tuple(_held(one, called) for one in invariants), check(trace, invariants))


def of_the_bug(run: Path) -> Comparison:
    """``old_bug.py``, collected by us, against what 0.x learned of the healthy program; 0.x judged its own trace."""
    said = json.loads((OLD / "bug_offline.json").read_text())["verdicts"]
    with tempfile.TemporaryDirectory() as scratch:
        path = _unpacked(OLD / "invariants_mlp.json.gz", Path(scratch))
        return Comparison("bug", tuple(said), check(run, load_invariants(path)))


def _held(invariant: Invariant, called: set[str | None]) -> str | None:
    """0.x on the trace it learned from; None where the rule speaks of what was taken out of it."""
    if "NOT SERIALIZABLE" in _text(invariant):
        return "failed"
    functions = {param.api_full_name for param in invariant.params if isinstance(param, APIParam)}
    if not functions <= called:
        return None
    return "not_triggered" if invariant.relation == "FunctionCoverRelation" else "passed"


def _unpacked(file: Path, folder: Path) -> Path:
    target = folder / file.name.removesuffix(".gz")
    target.write_bytes(gzip.decompress(file.read_bytes()))
    return target


# --- why we say something else ---------------------------------------------------------------------------------------

Test = Callable[[Invariant, str, Outcome], bool]


def _text(invariant: Invariant) -> str:
    return json.dumps(invariant.to_json())


def _reason(outcome: Outcome) -> str:
    return outcome.reason or ""


def _asks(invariant: Invariant, *properties: str) -> bool:
    return any(f'"{name}"' in _text(invariant) for name in properties)


CAUSES: Final[tuple[tuple[str, str, Test], ...]] = (
    (
        "W-B4",
        "the constant is 0.x's mark of a missing value: it can only fail; we do not judge it",
        lambda i, said, o: "W-B4" in _reason(o),
    ),
    (
        "W-B5",
        "speaks of the `id()` of temporary objects, which is no property of training: not judged",
        lambda i, said, o: "data_ID" in _text(i) or "grad_ID" in _text(i),
    ),
    (
        "W-A2",
        "the value before the call was seen long before it: `sgd()` makes no gradients; we take the value at its begin",
        lambda i, said, o: "changes Parameter.grad: None" in i.text_description,
    ),
    (
        "W-C4",
        '0.x calls every Cover rule that holds "not triggered"',
        lambda i, said, o: i.relation == "FunctionCoverRelation" and said == "not_triggered" and o.outcome == "passed",
    ),
    (
        "W-A5",
        "lists of tensors, and attributes like `name` and `retains_grad`: not recorded, so not judged",
        lambda i, said, o: any(
            words in _reason(o)
            for words in (
                "were not both recorded",
                "was not recorded",
                "could be told apart",
                "recorded with its content",
            )
        ),
    ),
    (
        "W-A10",
        "functions that are private, ask something, import lazily or set torch up: we put no probe on them",
        lambda i, said, o: (
            "was not watched in this run" in _reason(o)
            or ("was never called" in _reason(o) and any(word in _text(i) for word in _SET_UP))
        ),
    ),
    (
        "W-C1",
        "0.x did not record in selective mode what the rule needs, so it never triggered: it holds",
        lambda i, said, o: said == "not_triggered" and o.outcome == "passed",
    ),
    (
        "W-A8",
        "the stage `testing` comes from names in the source; we tell `evaluation` from grad mode and module mode",
        lambda i, said, o: _asks(i, "meta_vars.stage") and "testing" in _text(i) and "never met" in _reason(o),
    ),
    (
        "W-B10",
        "constant arguments that are objects, of which 0.x wrote `{}` or nothing: we say that it was not recorded",
        lambda i, said, o: '"arguments"' in _text(i) and o.outcome in ("dormant", "not_observable"),
    ),
    (
        "W-A7",
        "a condition on 0.x's step or eval_step numbers, which other loops advance: a step is an update here",
        lambda i, said, o: _asks(i, "meta_vars.step", "meta_vars.eval_step") and o.outcome != "passed",
    ),
    (
        "(cut)",
        "no fault: what came before the first call was in stage init, whose records were taken out of the trace",
        lambda i, said, o: i.relation == "FunctionCoverRelation" and len(o.violated_steps) == 1,
    ),
    (
        "W-A14",
        "state is observed around `Optimizer.step`, not inside it: the rule of `SGD.step` is violated",
        lambda i, said, o: "sgd.sgd() changes" in i.text_description and o.outcome == "dormant",
    ),
)
"""(fault in reference 0.x §7, what it comes to, whether it explains a difference), the first that fits."""

_SET_UP: Final = (
    "torch.library",
    "pybind11_detail",
    "warn_if_has_hooks",
    "torch.compiler",
    "serialization",
    "manual_seed",
)


def cause(invariant: Invariant, said: str, outcome: Outcome) -> tuple[str, str] | None:
    """The documented fault that explains the difference, and what it comes to; None if none does."""
    for fault, words, fits in CAUSES:
        if fits(invariant, said, outcome):
            return fault, words
    return None


def table(comparisons: list[Comparison]) -> list[str]:
    """Rows of markdown: set, fault, 0.x, ours, how many, which lines, what it comes to."""
    rows = []
    for comparison in comparisons:
        grouped: dict[tuple[str, str, str, str], list[int]] = {}
        for line, said, outcome, invariant in comparison.differences():
            fault, words = cause(invariant, said, outcome) or ("?", f"{outcome.text} ({outcome.reason})")
            grouped.setdefault((fault, said, outcome.outcome, words), []).append(line)
        for (fault, said, ours, words), lines in sorted(grouped.items()):
            rows.append(f"| {comparison.name} | {fault} | {said} | {ours} | {len(lines)} | {ranges(lines)} | {words} |")
    return rows


def ranges(lines: list[int]) -> str:
    """``0-3 7``: line numbers as ranges."""
    found: list[list[int]] = []
    for line in lines:
        if found and line == found[-1][1] + 1:
            found[-1][1] = line
        else:
            found.append([line, line])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def own() -> list[Comparison]:
    """The traces of 0.x against what 0.x learned of them."""
    return [
        of_its_own_reference("ref", "invariants_mlp.json.gz"),
        of_its_own_reference("ddp2", "invariants_ddp2.json.gz"),
    ]


def main(arguments: list[str]) -> None:
    """Print the table; an argument is the folder of a collected run of ``old_bug.py``."""
    comparisons: list[Any] = [*own(), *(of_the_bug(Path(word)) for word in arguments)]
    print("\n".join(table(comparisons)))


if __name__ == "__main__":
    main(sys.argv[1:])

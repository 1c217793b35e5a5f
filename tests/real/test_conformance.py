"""The laws of the conformance kit on real traces: healthy ones and one with a fault each."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.relations.kit import same
from traincheck.check import check, judge
from traincheck.infer import infer
from traincheck.invariants import dump_invariants, load_invariants
from traincheck.relations.base import Judgement, Numbered, merge, unwatched
from traincheck.relations.registry import ALL, BY_NAME
from traincheck.relations.tables import Tables, Window, concat
from traincheck.trace import open_trace

from .running import FAULTY, Runs, every, slow, transformers


def known(runs: Runs, program: str, tables: Tables) -> list[Numbered]:
    """The learned invariants that the run can answer, numbered."""
    items = [Numbered(number, invariant) for number, invariant in enumerate(load_invariants(runs.rules(program)))]
    return [item for item in items if unwatched(BY_NAME[item.invariant.relation], item.invariant, tables.watch) is None]


def judged(items: Sequence[Numbered], windows: Sequence[Window], tables: Tables) -> Judgement:
    found, faults = judge(items, windows, tables.watch)
    assert not faults
    return found


@every
def test_live_is_offline(runs: Runs, program: str, options: tuple[str, ...]) -> None:
    tables = Tables.of(open_trace(runs.collect(program, *options)))
    items = known(runs, program, tables)
    whole = judged(items, [tables.window()], tables)
    assert whole.violations.is_empty() == (not options)
    same(whole, judged(items, tables.steps(), tables))
    dice = random.Random(program)
    for count in (1, 4, 9):
        cuts: list[dict[int, int]] = [{} for _ in range(count)]
        for process in tables.processes:
            last = int(tables.calls.filter(process=process)["begin_seq"].max() or 0)
            for cut, point in zip(cuts, sorted(dice.randint(0, last) for _ in range(count)), strict=True):
                cut[process] = point
        same(whole, judged(items, tables.cut(cuts), tables))


@every
def test_split_is_whole(runs: Runs, program: str, options: tuple[str, ...]) -> None:
    tables = Tables.of(open_trace(runs.collect(program, *options)))
    items = known(runs, program, tables)
    pieces = [tables.only(process) for process in tables.processes]
    for relation in ALL:
        mine = [item for item in items if item.invariant.relation == relation.name]
        whole = judged(mine, [tables.window()], tables)
        same(whole, judged(mine, [concat([piece.window() for piece in pieces])], tables))
        if relation.scope == "process":
            parts = [judged(mine, [piece.window()], tables) for piece in pieces]
            same(whole, merge(parts))
            same(whole, merge(parts[::-1]))


@every
def test_file_round_trip(runs: Runs, tmp_path: Path, program: str, options: tuple[str, ...]) -> None:
    learned = runs.learned(program)
    learned.save(tmp_path / "rules.jsonl")
    again = load_invariants(tmp_path / "rules.jsonl")
    assert list(again) == list(learned)
    assert dump_invariants(again) == dump_invariants(learned)
    run = runs.collect(program, *options)
    told = [{**o.to_json(), "file": None, "line": None} for o in check(run, again).outcomes]
    assert told == [{**o.to_json(), "file": None, "line": None} for o in check(run, learned).outcomes]


LEARN = """
import sys
from traincheck.infer import infer
from traincheck.invariants import dump_invariants
sys.stdout.write(dump_invariants(infer(sys.argv[1:])))
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(
            name, marks=() if name == "digits_cnn" else (*slow, transformers) if name == "gpt2_trainer" else slow
        )
        for name in FAULTY
    ],
)
def test_same_traces_give_the_same_bytes(runs: Runs, program: str) -> None:
    run = runs.collect(program)
    text = dump_invariants(infer([run]))
    for seed, threads in (("1", "1"), ("2", "3")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "POLARS_MAX_THREADS": threads}
        again = subprocess.run(
            [sys.executable, "-c", LEARN, str(run)], env=environment, capture_output=True, text=True, check=True
        )
        assert again.stdout == text


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_order_of_references_says_nothing(runs: Runs) -> None:
    one, two = runs.collect("digits_cnn"), runs.collect("ddp")
    assert dump_invariants(infer([one, two])) == dump_invariants(infer([two, one]))

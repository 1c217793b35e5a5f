from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from traincheck.check import check
from traincheck.collect.plan import Plan
from traincheck.errors import TraincheckError
from traincheck.infer import REJECTED, Inference, finished, infer
from traincheck.invariants import ALWAYS, APIParam, Invariant, dump_invariants, load_invariants, parse_invariant
from traincheck.relations.base import Candidate, Needs
from traincheck.relations.contain import APIContain
from traincheck.trace.build import TraceBuilder
from traincheck.trace.manifest import Manifest

from .relations.worlds import World, texts


def test_more_references_make_it_smaller_and_surer() -> None:
    one = infer([World().trace()])
    two = infer([World().trace(), World(fused_from=1, seed=1).trace()])
    assert len(two) < len(one)
    assert "AdamW.step() always calls adamw.adamw()" not in texts(two.invariants)
    reasons = {rejected.invariant.text_description: rejected for rejected in two.rejected}
    lost = reasons["AdamW.step() always calls adamw.adamw()"]
    assert "reference 1" in str(lost.counterexample)
    assert all(invariant.support and invariant.support.references == 2 for invariant in two)


def test_accumulation_relaxes_the_rule_instead_of_breaking_it() -> None:
    learned = infer([World(accumulate=2).trace()])
    assert "Tensor.backward() changes every Parameter.grad: anything --> non-None" in texts(learned.invariants)
    assert check(World(accumulate=3, steps=2).trace(), learned).exit_code == 0


def test_learning_rate_zero_is_a_condition() -> None:
    learned = infer([World(warmup=2).trace()])
    rule = "AdamW.step() changes every Parameter.data: non-None --> non-None when optimizer.lr is above-zero"
    assert rule in texts(learned.invariants)
    assert check(World(warmup=4).trace(), learned).exit_code == 0
    assert check(World(warmup=1, not_in_optimizer=("fc.weight",)).trace(), learned).exit_code == 3


def test_frozen_parameters_of_the_reference_are_a_condition() -> None:
    learned = infer([World(frozen=("conv.bias",)).trace()])
    rules = [text for text in texts(learned.invariants) if text.startswith("Tensor.backward() changes every")]
    assert rules == ["Tensor.backward() changes every Parameter.grad: None --> non-None where requires_grad is True"]
    assert check(World(frozen=("fc.weight",)).trace(), learned).exit_code == 0


def test_set_up_is_not_learned() -> None:
    b = TraceBuilder()
    for _ in range(5):
        with b.call("m.setup"), b.call("m.load"):
            pass
    for _ in range(5):
        b.step()
        with b.call("m.work"), b.call("m.part"):
            pass
    assert texts(infer([b.trace()]).invariants) == ["m.work() always calls m.part()"]


def test_once_is_not_a_rule() -> None:
    b = TraceBuilder()
    for step in range(6):
        b.step()
        if step == 3:
            for _ in range(4):
                with b.call("m.save"), b.call("m.write"):
                    pass
    assert not len(infer([b.trace()]))


def test_private_functions_and_questions_are_not_learned() -> None:
    b = TraceBuilder()
    for _ in range(5):
        b.step()
        for child in ("m._hidden", "m.is_ready", "m.f.<locals>.g", "torch.overrides.x"):
            with b.call("m.work"), b.call(child):
                pass
    assert not len(infer([b.trace()]))


def test_what_follows_from_others_is_folded() -> None:
    b = TraceBuilder()
    for _ in range(4):
        b.step()
        with b.call("m.a"), b.call("m.b"), b.call("m.c"):
            pass
    assert texts(infer([b.trace()]).invariants) == ["m.a() always calls m.b()", "m.b() always calls m.c()"]


def test_the_stage_is_a_condition() -> None:
    b = TraceBuilder()
    for _ in range(4):
        b.step()
        for stage in ("training", "evaluation"):
            b.stage(stage)
            with b.call("m.forward"):
                if stage == "training":
                    with b.call("m.dropout"):
                        pass
    assert texts(infer([b.trace()]).invariants) == ["m.forward() always calls m.dropout() when stage is training"]


def test_a_run_that_never_evaluated_says_nothing_of_evaluation() -> None:
    learned = infer([World(evaluate_every=0).trace()])
    assert "AdamW.step() always calls adamw.adamw() when stage is init or training" not in texts(learned.invariants)
    assert "AdamW.step() always calls adamw.adamw() when stage is training" in texts(learned.invariants)


def test_clearing_speaks_of_what_is_there() -> None:
    """Learned from a run in which every zero_grad had something to clear, it is silent where there is nothing."""
    learned = infer([World(seed=1).trace()])
    assert check(World(steps=1).trace(), learned).exit_code == 0


def test_saved_with_provenance_and_rejected(tmp_path: Path) -> None:
    trace = World(fused_from=4, evaluate_every=0).trace()
    learned = infer([trace])
    learned.save(tmp_path / "good.jsonl")
    loaded = load_invariants(tmp_path / "good.jsonl")
    assert list(loaded) == list(learned)
    provenance = loaded.provenance[0]
    assert provenance["invariants"] == len(learned)
    assert provenance["references"][0]["steps"] == 6
    lines = (tmp_path / f"good.jsonl{REJECTED}").read_text().splitlines()
    rejected = [json.loads(line) for line in lines]
    assert len(rejected) == provenance["rejected"] == len(learned.rejected) > 0
    assert all(line["reason"] and line["invariant"]["relation"] for line in rejected)


def test_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    """Neither hash seeds nor threads change the file."""
    run = World(ranks=2).builder().write(tmp_path / "run")
    program = "import sys; from traincheck.infer import infer; infer([sys.argv[1]]).save(sys.argv[2])"
    written = []
    for seed in ("1", "2"):
        target = tmp_path / f"{seed}.jsonl"
        environment = {**os.environ, "PYTHONHASHSEED": seed, "POLARS_MAX_THREADS": seed}
        subprocess.run([sys.executable, "-c", program, str(run), str(target)], env=environment, check=True, timeout=120)
        written.append(target.read_bytes() + target.with_name(target.name + ".provenance.json").read_bytes())
    assert written[0] == written[1]
    assert written[0]


def test_bad_input_says_so(tmp_path: Path) -> None:
    with pytest.raises(TraincheckError, match="at least one healthy run"):
        infer([])
    with pytest.raises(TraincheckError, match="unknown relation 'Magic'"):
        infer([World(steps=1).trace()], relations=["Magic"])
    with pytest.raises(TraincheckError):
        infer([tmp_path / "nothing"])


def test_an_empty_trace_teaches_nothing() -> None:
    assert not len(infer([TraceBuilder().trace()]))


# --- what is learned, and by how many processes ----------------------------------------------------------------------


def relations_of(learned: Inference) -> set[str]:
    return {one.relation for one in (*learned, *(rejected.invariant for rejected in learned.rejected))}


def test_only_the_relations_asked_for() -> None:
    trace = World(ranks=2).trace()
    whole = infer([trace])
    assert {"APIContainRelation", "ConsistencyRelation", "FunctionCoverRelation"} <= relations_of(whole)
    some = infer([trace], relations=["Consistency", "FunctionCoverRelation"])
    assert relations_of(some) == {"ConsistencyRelation", "FunctionCoverRelation"}
    assert list(some) == [one for one in whole if one.relation in relations_of(some)]
    assert some.provenance["relations"] == ["ConsistencyRelation", "FunctionCoverRelation"]
    rest = infer([trace], without=["Consistency", "FunctionCover"])
    assert {one.key for one in rest} | {one.key for one in some} == {one.key for one in whole}
    with pytest.raises(TraincheckError, match="unknown relation 'Consistent'"):
        infer([trace], relations=["Consistent"])
    with pytest.raises(TraincheckError, match="found none"):
        infer([trace], relations=["Threshold"], without=["ThresholdRelation"])


@pytest.mark.timeout(300)
def test_processes_side_by_side_learn_the_same_bytes(tmp_path: Path) -> None:
    folder = World(ranks=2).builder().write(tmp_path / "run")
    written = []
    for jobs in (1, 2, 20):
        target = tmp_path / f"{jobs}.jsonl"
        infer([folder, World(seed=1).trace()], jobs=jobs).save(target)
        written.append([target.with_name(target.name + end).read_bytes() for end in ("", REJECTED)])
    assert written[0] == written[1] == written[2]
    assert written[0][0]
    with pytest.raises(TraincheckError, match="--jobs 0"):
        infer([folder], jobs=0)


def test_progress_goes_from_nothing_to_all() -> None:
    told: list[tuple[str, int, int]] = []
    infer([World().trace()], relations=["APIContain", "Threshold"], progress=lambda *now: told.append(now))
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert told[0][1] == 0
    assert told[-1] == ("done", 4, 4)
    assert [what for what, _, _ in told if what.startswith("learning")] == [
        "learning APIContainRelation",
        "learning ThresholdRelation",
    ]


# --- checked against their own references -----------------------------------------------------------------------------


def test_a_rule_that_its_reference_breaks_is_rejected_with_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a relation proposes: what does not hold in the references is not written."""
    trace = World().trace()
    wrong = finished(APIContain(), never_true())
    monkeypatch.setattr(APIContain, "hypothesize", lambda self, references: [Candidate(wrong)])
    learned = infer([trace], relations=["APIContain"])
    assert not len(learned)
    (rejected,) = learned.rejected
    assert rejected.reason == "violated by its own references"
    assert "step 1" in str(rejected.counterexample)


def test_a_rule_that_selective_runs_would_break_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a relation that asks for less than it needs: what a selective run would have seen decides."""
    trace = World().trace()
    trace.manifest = Manifest(plan=Plan().to_json())
    whole = infer([trace], relations=["APIContain"])
    rule = next(one for one in whole if one.text_description == "AdamW.step() always calls adamw.adamw()")
    told = APIContain.needs

    def less(self: APIContain, invariant: Invariant) -> Needs:
        needs = told(self, invariant)
        return replace(needs, functions=needs.functions - {rule.params[1].api_full_name})

    monkeypatch.setattr(APIContain, "needs", less)
    learned = infer([trace], relations=["APIContain"])
    reasons = {rejected.invariant.key: rejected for rejected in learned.rejected}
    assert rule.key not in {one.key for one in learned}
    assert reasons[rule.key].reason == "violated by its own references in selective form"


def test_equivalents_are_listed_under_what_implies_them() -> None:
    b = TraceBuilder()
    for _ in range(4):
        b.step()
        with b.call("m.a"), b.call("m.b"), b.call("m.c"):
            pass
    learned = infer([b.trace()])
    listed = {one.text_description: one.equivalents for one in learned if one.equivalents}
    ((_, (gone,)),) = listed.items()
    assert gone.text_description == "m.a() always calls m.c()"
    assert gone.id not in {one.key for one in learned}
    assert [parse_invariant(line, "text", 1) for line in dump_invariants(learned).splitlines()] == list(learned)


def never_true() -> Invariant:
    def api(name: str) -> APIParam:
        return APIParam(param_type="APIParam", api_full_name=name)

    return Invariant(
        text_description="",
        relation="APIContainRelation",
        params=[api("torch._tensor.Tensor.backward"), api("torch.nn.modules.module.Module.eval")],
        precondition={"parent_func_call_pre": ALWAYS},
    )


def test_a_run_whose_names_were_lost_gives_nothing_wrong(tmp_path: Path) -> None:
    """Symbols of which the end, or all, was not copied: what has a name is learned from, nothing fails."""
    for number, share in enumerate((0.0, 0.3, 0.6, 0.9)):
        run = World().builder().write(tmp_path / str(number))
        for symbols in run.glob("processes/*/symbols.jsonl"):
            whole = symbols.read_bytes()
            symbols.write_bytes(whole[: int(len(whole) * share)])
        assert len(infer([run])) <= len(infer([World().trace()]))


def test_a_run_counts_once(tmp_path: Path) -> None:
    run = World().builder().write(tmp_path / "run")
    (tmp_path / "link").symlink_to("run")
    for again in (run, tmp_path / "x" / ".." / "run", tmp_path / "link"):
        (tmp_path / "x").mkdir(exist_ok=True)
        with pytest.raises(TraincheckError, match=r"expected different runs, found .* twice"):
            infer([run, again])

from __future__ import annotations

from pathlib import Path

import pytest

from traincheck.errors import TraincheckError
from traincheck.invariants import RELATIONS, load_invariants
from traincheck.manage.select import Selection, positions, relation_name
from traincheck.manage.words import conditions, detail, parameters, support_line

from .making import changes, contain, when

SAMPLE = Path(__file__).parents[1] / "data" / "invariants" / "sample-0x.json"

STEP, ADAMW = "torch.optim.adamw.AdamW.step", "torch.optim.adamw.adamw"
SET = [
    contain(STEP, ADAMW, applications=10, references=1),
    changes(STEP, "data", applications=30, references=2),
    changes("torch._tensor.Tensor.backward", "grad", when("training"), applications=5, references=2),
    contain("torch.nn.modules.conv.Conv2d.forward", "torch.conv2d"),
]


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (Selection(), [0, 1, 2, 3]),
        (Selection(relations=("apicontain",)), [0, 1, 2, 3]),
        (Selection(relations=("Consistency",)), []),
        (Selection(relations=("Consistency", "APIContain")), [0, 1, 2, 3]),
        (Selection(not_relations=("APIContainRelation",)), []),
        (Selection(apis=("AdamW.step",)), [0, 1]),
        (Selection(apis=("adamw",)), [0]),
        (Selection(apis=("step",)), [0, 1]),
        (Selection(apis=("ep",)), []),
        (Selection(apis=("adamw.step",)), []),
        (Selection(apis=("torch.conv2d", "*backward")), [2, 3]),
        (Selection(apis=("torch.*",), not_apis=("AdamW.*",)), [2, 3]),
        (Selection(tensors=("Parameter.grad",)), [2]),
        (Selection(tensors=("grad", "data")), [1, 2]),
        (Selection(tensors=("torch.nn.Parameter",)), [1, 2]),
        (Selection(not_tensors=("data",)), [0, 2, 3]),
        (Selection(min_support=10), [0, 1]),
        (Selection(min_references=2), [1, 2]),
        (Selection(min_references=2, apis=("step",)), [1]),
        (Selection(items=("3", SET[1].key)), [1, 3]),
        (Selection(not_items=("0", SET[1].key)), [2, 3]),
        (Selection(items=("0",), not_items=("0",)), []),
    ],
)
def test_choosing(selection: Selection, chosen: list[int]) -> None:
    assert selection.choose(SET) == chosen


def test_what_was_asked_is_kept_and_nothing_else() -> None:
    assert Selection(apis=("a*",), min_support=3).to_json() == {"apis": ["a*"], "min_support": 3}


def test_old_files_are_chosen_from_too() -> None:
    old = load_invariants(SAMPLE)
    for name in RELATIONS:
        found = [old[number].relation for number in Selection(relations=(name,)).choose(old)]
        assert set(found) <= {name}
    assert Selection(apis=("Dropout.forward",)).choose(old)
    assert Selection(min_support=51).choose(old)
    assert Selection(min_references=1).choose(old) == []  # the file does not say
    dtype = Selection(tensors=("dtype",)).choose(old)
    assert any(old[number].relation == "ConsistentOutputRelation" for number in dtype)


def test_relations_by_short_name() -> None:
    assert relation_name("APIContain") == relation_name("apicontainrelation") == "APIContainRelation"
    with pytest.raises(TraincheckError, match="unknown relation 'Magic'") as caught:
        relation_name("Magic")
    assert "FunctionLead" in str(caught.value.hint)


@pytest.mark.parametrize("item", ["4", "99999999", "-1", "x", "", "0" * 16, "1.0", "²"])
def test_unknown_items_are_refused(item: str) -> None:
    with pytest.raises(TraincheckError) as caught:
        positions(SET, [item])
    assert caught.value.hint


def test_items_name_each_invariant_once() -> None:
    assert positions([*SET, SET[0]], ["1", SET[0].key, "0", "1"]) == [1, 0, 4]


def test_an_id_written_in_the_file_is_known_too() -> None:
    other = SET[0].model_copy(update={"id": "f" * 16})
    assert positions([other], ["f" * 16]) == positions([other], [other.key]) == [0]


def test_every_invariant_of_old_files_has_words() -> None:
    old = load_invariants(SAMPLE)
    for number, invariant in enumerate(old):
        assert all(parameters(invariant))
        assert all(words for _, words in conditions(invariant))
        assert support_line(invariant)
        assert detail(old, number)["invariant"] == invariant.to_json()
    assert any("with self=torch" in " ".join(parameters(one)) for one in old)


def test_words() -> None:
    assert parameters(SET[2])[1] == "attribute grad of variables of type torch.nn.Parameter: None --> anything"
    assert conditions(SET[2]) == [("the call", "stage is training")]
    assert conditions(SET[0]) == [("the call", "always")]
    assert support_line(SET[1]) == "30 applications, 1 step, 1 rank, 2 references"
    assert support_line(SET[3]) == "the file does not say"

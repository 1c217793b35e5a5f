"""The leak audit: whatever a solver could see of what it must not is found, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from traincheck.pilot import events, leaks
from traincheck.pilot.canonical import sha256
from traincheck.pilot.ledger import Entry
from traincheck.pilot.places import Place
from traincheck.pilot.sources import Objects, capture

from .places_support import inside, tiny, trial_place

CANARY = tiny().case.canary
TOLD = "Prepare this training."


def told_of(tmp_path: Path, variables: dict[str, str] | None = None) -> leaks.Forbidden:
    return leaks.forbidden([tiny()], [tiny().folder.resolve(), tmp_path.resolve()], variables or {})


def sandbox() -> str:
    from traincheck.pilot import jail

    return "jail" if jail.available().ok else "local"


def of_words(audited: events.Audited) -> list[str]:
    """Without what a place that isolates nothing always has."""
    return [leak for leak in audited.leaks if "can read" not in leak and "the path of hidden" not in leak]


def entry(kind: str, **data: object) -> Entry:
    return Entry(number=7, at_ns=1, wall_ns=1, kind=kind, data=dict(data), previous="", hash="")


def test_a_clean_packet_has_no_leaks(tmp_path: Path) -> None:
    with trial_place(tmp_path, "optional", sandbox()) as place:
        found = leaks.first(place, told_of(tmp_path), TOLD)
    assert of_words(found) == []
    if place.kind == "jail":
        assert found.leaks == ()
    assert found.when == "first"
    assert found.looked_at > 100


@pytest.mark.parametrize("name", ["work/x.py", "home/.cache/x", "tmp/x", "package/traincheck/x.py", "manual/manual.md"])
def test_a_canary_in_any_folder_is_found(tmp_path: Path, name: str) -> None:
    with trial_place(tmp_path, "control", sandbox()) as place:
        path = place.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"x = 1  # {CANARY}\n")
        found = of_words(leaks.first(place, told_of(tmp_path), TOLD))
    assert found == [f"{name}: the canary of case tiny-accumulation"]


def test_a_canary_in_a_name_and_in_a_link_is_found(tmp_path: Path) -> None:
    with trial_place(tmp_path, "control", sandbox()) as place:
        (place.root / "work" / CANARY).touch()
        (place.root / "work" / "link").symlink_to(f"/nowhere/{CANARY}")
        assert len(of_words(leaks.first(place, told_of(tmp_path), TOLD))) == 2


def test_the_oracle_without_its_canary_is_found_at_the_start(tmp_path: Path) -> None:
    text = (tiny().private / "oracles" / "fixed" / "train.py").read_text().replace(CANARY, "")
    with trial_place(tmp_path, "control", sandbox()) as place:
        (place.root / "work" / "train.py").write_text(text)
        found = of_words(leaks.first(place, told_of(tmp_path), TOLD))
        # What a solver wrote itself may come to the same: no leak at the end.
        last = of_words(leaks.last(place, told_of(tmp_path), [], Objects(tmp_path / "store"), []))
    assert any("a line of private" in leak for leak in found)
    assert last == []


def test_a_canary_in_the_first_message_is_found(tmp_path: Path) -> None:
    with trial_place(tmp_path, "control", sandbox()) as place:
        assert of_words(leaks.first(place, told_of(tmp_path), f"{TOLD} {CANARY}")) == [
            "the first message: the canary of case tiny-accumulation"
        ]


def test_secrets_are_found_in_variables_and_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "sk-1234567890"
    with trial_place(tmp_path, "control", sandbox()) as place:
        (place.root / "home" / "config").write_text(f"key = {secret}\n")
        variables = place.environment()
        monkeypatch.setattr(Place, "environment", lambda self: {**variables, "SOME_API_KEY": secret})
        found = of_words(leaks.first(place, told_of(tmp_path, {"SOME_API_KEY": secret, "EDITOR": "vi"}), TOLD))
    assert found == [
        "home/config: the value of variable SOME_API_KEY",
        "variable SOME_API_KEY: the value of variable SOME_API_KEY",
    ]


def test_hidden_paths_that_can_be_read_are_told(tmp_path: Path) -> None:
    with trial_place(tmp_path, "control", "local") as place:
        found = leaks.first(place, told_of(tmp_path), TOLD)
    assert f"a process of the trial can read {tiny().private.resolve()}" in found.leaks


def test_transcripts_and_submitted_sources_are_looked_through_at_the_end(tmp_path: Path) -> None:
    objects = Objects(tmp_path / "store")
    (tmp_path / "submitted").mkdir()
    (tmp_path / "submitted" / "train.py").write_text(f"# {CANARY}\n")
    source = objects.put_map(capture(tmp_path / "submitted", objects))
    entries = [
        entry("model_answered", text=objects.put(f"I see {CANARY}.".encode())),
        entry("tool_called", arguments={"command": f"cat {tiny().private.resolve()}"}),
        entry("audited", leaks=[CANARY]),
        entry("tool_answered", text=sha256("there is no such object")),
    ]
    with trial_place(tmp_path, "control", sandbox()) as place:
        found = leaks.last(place, told_of(tmp_path), entries, objects, [source, source])
    told = [leak for leak in found.leaks if "can read" not in leak and not leak.startswith("variable")]
    assert [leak.partition(":")[0] for leak in told if leak.startswith("text")] == [
        "text of entry 7 (model_answered)", "text of entry 7 (tool_answered)",
    ]  # fmt: skip
    assert [leak for leak in told if leak.startswith("entry")]
    assert not [leak for leak in told if "audited" in leak]
    assert [leak for leak in told if leak.startswith("source")] == [
        f"source {source[:12]}: train.py: the canary of case tiny-accumulation"
    ]


def test_what_a_solver_copied_in_is_found_at_the_end(tmp_path: Path) -> None:
    with trial_place(tmp_path, "control", sandbox()) as place:
        inside(place, "sh", "-c", f"echo {CANARY} > notes; mkdir -p ~/.cache; echo {CANARY} > ~/.cache/x")
        found = leaks.last(place, told_of(tmp_path), [], Objects(tmp_path / "store"), [])
    assert {"work/notes", "home/.cache/x"} <= {leak.partition(":")[0] for leak in found.leaks}


def test_every_private_file_of_a_tiny_case_has_a_line_that_gives_it_away(tmp_path: Path) -> None:
    known = told_of(tmp_path).lines
    for path in sorted(tiny().private.rglob("*.py")):
        if "__pycache__" not in path.parts:
            name = f"a line of private tiny-accumulation/{path.relative_to(tiny().private).as_posix()}"
            assert name in known, name

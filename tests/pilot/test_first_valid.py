"""The first valid submission: proven, bounded, undetermined, none; the definition again, by brute force."""

from __future__ import annotations

from itertools import product

import pytest

from traincheck.pilot.grading.first_valid import first_valid
from traincheck.pilot.verdicts import FirstValid, Occurrence

WORDS = {"c": "correct", "i": "incorrect", "u": "unknown"}


def of(letters: str) -> FirstValid:
    """``letters``: verdicts of the initial snapshot and of each submission."""
    return first_valid(
        [Occurrence(number=n, source=str(n), verdict=WORDS[letter]) for n, letter in enumerate(letters)]  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("iic", FirstValid(status="proven", number=2, earliest=2, latest=2)),
        ("icu", FirstValid(status="proven", number=1, earliest=1, latest=1)),
        ("iuc", FirstValid(status="bounded", earliest=1, latest=2)),
        ("iiuicc", FirstValid(status="bounded", earliest=2, latest=4)),
        ("iu", FirstValid(status="undetermined", earliest=1)),
        ("iii", FirstValid(status="none")),
        ("i", FirstValid(status="none")),
        ("c", FirstValid(status="none")),
        ("cc", FirstValid(status="proven", number=1, earliest=1, latest=1)),
        ("uc", FirstValid(status="proven", number=1, earliest=1, latest=1)),
    ],
)
def test_status_of_a_series(letters: str, expected: FirstValid) -> None:
    assert of(letters) == expected


def test_every_series_holds_what_its_unknowns_may_turn_out_to_be() -> None:
    """Whatever the unknown submissions really are, the answer is true of it, and says no less than it can."""
    for length in range(1, 5):
        for letters in product("ciu", repeat=length):
            found = of("i" + "".join(letters))
            truths = set()
            unknown = [place for place, letter in enumerate(letters) if letter == "u"]
            for filled in product("ci", repeat=len(unknown)):
                real = list(letters)
                for place, letter in zip(unknown, filled, strict=True):
                    real[place] = letter
                truths.add(next((n for n, letter in enumerate(real, start=1) if letter == "c"), None))
            if found.status == "proven":
                assert truths == {found.number}
            elif found.status == "bounded":
                assert None not in truths
                assert (min(truths), max(truths)) == (found.earliest, found.latest)  # type: ignore[type-var]
                assert len(truths) > 1
            elif found.status == "undetermined":
                assert None in truths
                assert min(n for n in truths if n is not None) == found.earliest
            else:
                assert truths == {None}

"""One replay against one program known to be right: every tensor of every rank and step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from traincheck.pilot.cases import Tolerance
from traincheck.pilot.grading.records import Contents, Entry, Process, Records, State, Step

Category = Literal["parameters", "buffers", "gradients", "optimizer", "generators", "inputs", "shape of the run"]


@dataclass(frozen=True)
class Difference:
    """What differs, where, and how much."""

    category: Category
    what: str
    """Name of the tensor, generator or input."""
    rank: int
    step: int
    """0: of the end, or of the whole run."""
    moment: str
    """``before``, ``at`` or ``after`` the step, ``end``."""
    error: float | None
    """Relative L2 error; None where there is no number (another shape, only on one side, other bits)."""
    note: str = ""

    def __str__(self) -> str:
        place = f"rank {self.rank}" + (f", {self.moment} step {self.step}" if self.step else f", {self.moment}")
        if self.category == "shape of the run":
            return self.what
        amount = f"relative L2 error {self.error:.3g}" if self.error is not None else self.note or "other bits"
        return f"{self.category} {self.what} differ on {place}: {amount}"


@dataclass
class Comparison:
    """A replay against one oracle. It matches when nothing differs and nothing is missing."""

    oracle: str
    differences: list[Difference] = field(default_factory=list)
    """In the order in which they came about: by step, then inputs, before, gradients, after, then rank."""
    missing: list[str] = field(default_factory=list)
    errors: dict[str, list[float | None]] = field(default_factory=dict)
    """Category -> per step the relative L2 error over all tensors of all ranks; None where a side has no number."""

    @property
    def matches(self) -> bool:
        """Whether all state is the oracle's."""
        return not self.differences and not self.missing

    @property
    def first(self) -> Difference | None:
        """What differs first."""
        return self.differences[0] if self.differences else None


def compare(
    replay: Records,
    oracle: Records,
    *,
    name: str,
    ranks: int,
    steps: int,
    tolerance: Tolerance,
    inputs: tuple[str, ...] = (),
) -> Comparison:
    """Hold ``replay`` against ``oracle`` (of the same scenario and topology).

    ``inputs`` are the model's inputs that have to be equal; empty: all of them. What is on neither side is no
    agreement: records that are missing are told in ``missing``.
    """
    return _Work(replay, oracle, Comparison(name), ranks, steps, tolerance, inputs).all()


@dataclass
class _Sums:
    """Of one category at one step, over all tensors and ranks."""

    error: float = 0.0
    norm: float = 0.0
    whole: bool = True


class _Work:
    def __init__(
        self, replay: Records, oracle: Records, found: Comparison, ranks: int, steps: int, tolerance: Tolerance,
        inputs: tuple[str, ...],
    ) -> None:  # fmt: skip
        self.found, self.ranks, self.steps, self.tolerance, self.inputs = found, ranks, steps, tolerance, inputs
        self.replay, self.oracle = replay, oracle
        self.sums: dict[tuple[Category, int], _Sums] = {}

    def all(self) -> Comparison:
        found = self.found
        found.missing = self.replay.missing(self.ranks, self.steps)
        found.missing += [f"oracle {found.oracle}, {text}" for text in self.oracle.missing(self.ranks, self.steps)]
        pairs = [(rank, mine, self.oracle.ranks[rank]) for rank, mine in sorted(self.replay.ranks.items())
                 if rank in self.oracle.ranks]  # fmt: skip
        sides = {rank: _Pair(rank, mine, right, self) for rank, mine, right in pairs}
        for number in range(1, self.steps + 1):
            moments = [
                list(pair.step(mine.steps[number], right.steps[number]))
                for (rank, mine, right) in pairs
                if (pair := sides[rank]) and number in mine.steps and number in right.steps
            ]
            # what came about first is told first, whichever rank it was on
            for order in range(_MOMENTS):
                for rank_moments in moments:
                    found.differences += rank_moments[order]
        for rank, mine, right in pairs:
            found.differences += sides[rank].end(mine, right)
        for text in self.replay.extra(self.ranks, self.steps):
            found.differences.append(
                Difference("shape of the run", f"the training has more than the scenario: {text}", 0, 0, "end", None)
            )
        self._errors()
        return found

    def _errors(self) -> None:
        for category in ("parameters", "buffers", "gradients", "optimizer"):
            self.found.errors[category] = [
                _relative(sums.error, sums.norm) if (sums := self.sums.get((category, number))) and sums.whole else None
                for number in range(1, self.steps + 1)
            ]


_MOMENTS = 6
_LOST = "other bits, its content is not there"


class _Pair:
    """One rank of both sides."""

    def __init__(self, rank: int, mine: Process, right: Process, work: _Work) -> None:
        self.rank, self.work = rank, work
        self.mine, self.right = Contents(mine.folder), Contents(right.folder)

    def step(self, mine: Step, right: Step) -> Iterator[list[Difference]]:
        """Differences of one step, in ``_MOMENTS`` lists in the order in which they came about."""
        number = right.step
        yield self._inputs(mine, right)
        yield self._generators(number, "before", mine.generators_before, right.generators_before)
        yield self._state(number, "before", mine.before, right.before)
        gradients = self._tensors("gradients", number, "at", mine.gradients, right.gradients)
        if mine.optimizer != right.optimizer:
            gradients.append(
                Difference("optimizer", "number", self.rank, number, "at", None, "another optimizer makes the step")
            )
        yield gradients
        yield [
            *self._tensors("optimizer", number, "after", mine.optimizer_state, right.optimizer_state),
            *self._state(number, "after", mine.after, right.after),
        ]
        yield self._generators(number, "after", mine.generators_after, right.generators_after)

    def end(self, mine: Process, right: Process) -> list[Difference]:
        """Differences of the state that the program ends with.

        Looked at where a wrapped optimizer writes to the model after the step that is seen: elsewhere what a program
        does to its model after training (averaging, converting to save it) is its own affair.
        """
        last = right.steps.get(self.work.steps)
        if last is None or mine.end is None or right.end is None:
            return []
        if not last.after.masters or last.after.parameters != last.before.parameters:
            return []
        if mine.end.final is None or right.end.final is None:
            self.work.found.missing.append(f"rank {self.rank}: no state at the end")
            return []
        return self._state(0, "end", mine.end.final, right.end.final)

    def _state(self, number: int, moment: str, mine: State, right: State) -> list[Difference]:
        return [
            *self._tensors("parameters", number, moment, mine.parameters, right.parameters),
            *self._tensors("parameters", number, moment, mine.masters, right.masters),
            *self._tensors("buffers", number, moment, mine.buffers, right.buffers),
        ]

    def _tensors(
        self, category: Category, number: int, moment: str,
        mine: Mapping[str, Entry | None], right: Mapping[str, Entry | None],
    ) -> list[Difference]:  # fmt: skip
        found = []
        limit = getattr(self.work.tolerance, category)
        counted = moment != "before" and number > 0
        for name in sorted({*mine, *right}):
            if name not in mine or name not in right:
                note = "only the right program has it" if name in right else "the right program has no such tensor"
                found.append(Difference(category, name, self.rank, number, moment, None, note))
                continue
            one, other = mine[name], right[name]
            error, note = self._error(one, other)
            if counted:
                self._count(category, number, one, other)
            if note == _LOST and limit > 0:
                self.work.found.missing.append(f"rank {self.rank}: content of {category} {name}")
            elif error is None or not error <= limit:
                found.append(Difference(category, name, self.rank, number, moment, error, note))
        return found

    def _error(self, mine: Entry | None, right: Entry | None) -> tuple[float | None, str]:
        """Relative L2 error of one tensor (0: the same bits), or None and why there is none."""
        if mine is None or right is None:
            there = mine or right
            if there is None or math.sqrt(there.square) <= self.work.tolerance.absolute:
                return 0.0, ""
            return None, "there is none" if mine is None else "the right program has none"
        if mine.sha256 == right.sha256:
            return 0.0, ""
        if (mine.dtype, mine.shape) != (right.dtype, right.shape):
            return None, f"{mine.dtype}{list(mine.shape)} in place of {right.dtype}{list(right.shape)}"
        if max(mine.square, right.square) <= self.work.tolerance.absolute**2 > 0:
            return 0.0, ""
        squares = self._squares(mine, right)
        if squares is None:
            return None, _LOST
        # Bits that differ are a difference, also where the values are equal (a negative zero) or no numbers.
        return max(_relative(squares, right.square), math.ulp(0.0)), ""

    def _squares(self, mine: Entry, right: Entry) -> float | None:
        """Sum of squares of the difference; None when a content is missing."""
        import torch

        try:
            one, other = self.mine.get(mine.sha256), self.right.get(right.sha256)
        except LookupError:
            return None
        wide = torch.complex128 if one.is_complex() else torch.float64
        return float(torch.linalg.vector_norm(one.to(wide) - other.to(wide)).item()) ** 2

    def _count(self, category: Category, number: int, mine: Entry | None, right: Entry | None) -> None:
        sums = self.work.sums.setdefault((category, number), _Sums())
        sums.norm += right.square if right is not None else 0.0
        if mine is None or right is None:
            there = mine or right
            sums.error += there.square if there is not None else 0.0
        elif mine.sha256 != right.sha256:
            same = (mine.dtype, mine.shape) == (right.dtype, right.shape)
            squares = self._squares(mine, right) if same else None
            sums.whole = sums.whole and squares is not None
            sums.error += squares or 0.0

    def _generators(
        self, number: int, moment: str, mine: Mapping[str, str], right: Mapping[str, str]
    ) -> list[Difference]:
        """A generator that only one side has (a library that only it imports) was never drawn from on the other."""
        return [
            Difference("generators", name, self.rank, number, moment, None, "another state")
            for name in sorted({*mine} & {*right})
            if mine[name] != right[name]
        ]

    def _inputs(self, mine: Step, right: Step) -> list[Difference]:
        wanted = self.work.inputs
        found = []
        if len(mine.inputs) != len(right.inputs):
            note = f"{len(mine.inputs)} forwards in place of {len(right.inputs)}"
            return [Difference("inputs", "of the step", self.rank, right.step, "at", None, note)]
        for one, other in zip(mine.inputs, right.inputs, strict=True):
            for name in wanted or sorted({*one, *other}):
                if one.get(name) != other.get(name):
                    found.append(Difference("inputs", name, self.rank, right.step, "at", None))
        return found


def _relative(error: float, norm: float) -> float:
    """sqrt(error / norm), both sums of squares; infinite where there is no number."""
    if math.isnan(error) or math.isnan(norm) or math.isinf(error):
        return math.inf
    if norm == 0:
        return 0.0 if error == 0 else math.inf
    return math.sqrt(error / norm)

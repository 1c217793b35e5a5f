"""The order of trials: pairs of a plain and a watched run, each begun with one or the other, by a recorded seed."""

from __future__ import annotations

import random

from traincheck.overhead.policy import PLAIN, Policy
from traincheck.overhead.trial import PEER_REFERENCE, REFERENCE, Trial


def references(policy: Policy) -> list[Trial]:
    """Healthy runs to learn from."""
    return [
        Trial(f"reference.{seed}", "reference", 0, REFERENCE, REFERENCE, 1, seed, policy.reference.steps)
        for seed in policy.reference.seeds
    ]


def peer_reference(policy: Policy) -> Trial:
    """What the 0.x tool learns from: the first seed, API records only."""
    seed = policy.reference.seeds[0]
    return Trial("reference.peer", "reference", 0, PEER_REFERENCE, PEER_REFERENCE, 1, seed, policy.reference.steps)


def planned(policy: Policy) -> int:
    """Number of trials."""
    peer = any(mode.kind == "peer-selective" for mode in policy.modes)
    return len(policy.reference.seeds) + peer + 2 * len(pairs(policy))


def pairs(policy: Policy) -> list[tuple[Trial, Trial]]:
    """All pairs in the order in which they are run, each in its order.

    In each mode half of the pairs (as near as the number allows) begin with the plain run, so that drift of the
    machine favours neither. Modes take turns, in an order that is drawn for each round.
    """
    source = random.Random(policy.protocol.order_seed)
    protocol, hold_out = policy.protocol, policy.hold_out
    lengths = {mode.name: mode.steps or protocol.steps for mode in policy.modes}
    found = _cohort("main", lengths, protocol.pairs, protocol.seed, source)
    if hold_out is not None:
        lengths = dict.fromkeys(hold_out.modes, hold_out.steps)
        found += _cohort("hold-out", lengths, hold_out.pairs, hold_out.seed, source)
    return found


def _cohort(
    cohort: str, lengths: dict[str, int], count: int, seed: int, source: random.Random
) -> list[tuple[Trial, Trial]]:
    """``lengths``: steps of the trials of each mode."""
    begins = {name: source.random() < 0.5 for name in lengths}
    found = []
    for number in range(1, count + 1):
        order = list(lengths)
        source.shuffle(order)
        for name in order:
            plain_first = begins[name] == (number % 2 == 1)
            modes = (PLAIN, name) if plain_first else (name, PLAIN)
            one, other = (
                Trial(
                    f"{cohort}.{number}.{name}.{'plain' if mode == PLAIN else 'watched'}",
                    cohort, number, name, mode, position, seed, lengths[name],
                )
                for position, mode in enumerate(modes, start=1)
            )  # fmt: skip
            found.append((one, other))
    return found

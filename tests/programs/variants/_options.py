"""Command line of the variants: the same program with another configuration, or with one fault built in."""

from __future__ import annotations

import argparse

ODD = {
    "lr": 0.00317,
    "batch": 37,
    "width": 53,
    "beta1": 0.877,
    "beta2": 0.9713,
    "eps": 3.1e-7,
    "drop": 0.213,
    "clip": 1.073,
    "epochs": 2,
}
"""Values that stand nowhere else, so that a test can look for them in what was learned."""


def options(**defaults: float) -> argparse.Namespace:
    """Parsed options; ``defaults`` (of this program) win over ``ODD``."""
    parser = argparse.ArgumentParser()
    for name, value in {"seed": 0, "steps": 0, **ODD, **defaults}.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    parser.add_argument("--fault", default="", help="the fault to build in; none: the healthy program")
    parser.add_argument("--since", type=int, default=1, help="first step with the fault, where it depends on the step")
    return parser.parse_args()

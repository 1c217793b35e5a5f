"""What ``traincheck infer --explain`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from traincheck.cli import _output

if TYPE_CHECKING:
    from traincheck.explain import Answer
    from traincheck.infer import Inference
    from traincheck.trace import Trace


def show(learned: Inference, traces: Sequence[Trace], subject: str, as_json: bool) -> None:
    """Print why there are invariants about the subject, and why there are no others. Raises ``TraincheckError``."""
    from traincheck.explain import explain
    from traincheck.infer import tables_of

    answer = explain(learned, tables_of(traces), subject)
    if as_json:
        _output.print_json(answer.to_json())
    else:
        _render(answer)


def _render(answer: Answer) -> None:
    for kept in answer.kept:
        told = kept.to_json()
        _output.heading(f"{told['text']}")
        _output.say(f"  kept         {told['relation']}, id {told['id']}")
        _output.say(f"  holds        {told['condition']}")
        _output.say(f"  support      {told['support']}")
        for example in kept.examples:
            rank = f", rank {example.rank}" if example.rank is not None else ""
            steps = "1 step" if example.steps == 1 else f"{example.steps:,} steps"
            _output.say(f"  in           {example.reference}: {example.applications:,} times in {steps}")
            _output.say(f"  for example  step {example.step}{rank}")
            for event in example.events:
                _output.say(f"               {event}")
        for equivalent in told["equivalents"]:
            _output.say(f"  stands for   {equivalent['text_description']}")
    for folded in answer.folded:
        _output.heading(folded.equivalent.text_description)
        _output.say(f"  folded       into: {folded.under.text_description}")
    for dropped in answer.dropped:
        _output.heading(dropped.invariant.text_description)
        _output.say(f"  dropped      {dropped.reason}")
        if dropped.counterexample:
            _output.say(f"  against it   {dropped.counterexample}")
        if dropped.reference:
            _output.say(f"               {dropped.reference}{f', {dropped.location}' if dropped.location else ''}")
    if answer.called:
        _output.heading("Functions of that name in these runs")
    for called in answer.called:
        often = f"{called.calls:,} calls, {called.training_steps:,} training steps"
        _output.say(f"  {called.function}: {often}" + (f"; {called.remark}" if called.remark else ""))
    _output.say(
        f"\n{len(answer.kept):,} kept, {len(answer.folded):,} folded into others, {len(answer.dropped):,} dropped"
    )

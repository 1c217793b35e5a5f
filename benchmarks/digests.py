"""What observing costs: digests and whole observations of a Llama-style model (57 tensors, 6,163,712 parameters).

    python benchmarks/digests.py [--json]

Prints the best and the median of repeated runs, in milliseconds. Run it on a quiet machine with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from xxhash import xxh3_128_intdigest

from traincheck.collect.digests import Digester
from traincheck.collect.observe.guard import quiet
from traincheck.collect.observe.points import make_observer, observation_points
from traincheck.collect.recorder import Recorder

VOCABULARY, WIDTH, HIDDEN, LAYERS = 2048, 256, 768, 6
REPEATS = 60


class Block(nn.Module):
    """Attention projections, gated MLP and two norms: nine tensors."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("wq", "wk", "wv", "wo"):
            setattr(self, name, nn.Linear(WIDTH, WIDTH, bias=False))
        self.w1, self.w3 = nn.Linear(WIDTH, HIDDEN, bias=False), nn.Linear(WIDTH, HIDDEN, bias=False)
        self.w2 = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.attention_norm, self.ffn_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.wo(self.wq(x) + self.wk(x) + self.wv(self.attention_norm(x)))
        y = self.ffn_norm(x)
        return x + self.w2(nn.functional.silu(self.w1(y)) * self.w3(y))  # type: ignore[no-any-return]


class Llama(nn.Module):
    """57 tensors of the shapes of TorchTitan's Llama debug model."""

    def __init__(self) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)
        self.output = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))  # type: ignore[no-any-return]


def timed(work: Callable[[], Any]) -> dict[str, float]:
    """Best and median milliseconds."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e3)
    return {"best_ms": round(min(times), 3), "median_ms": round(statistics.median(times), 3)}


def main() -> None:
    torch.manual_seed(0)
    model = Llama()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randint(0, VOCABULARY, (1, 16))).sum().backward()
    optimizer.step()
    tensors = list(model.parameters())
    tiny = [torch.randn(4) for _ in tensors]
    found: dict[str, Any] = {
        "tensors": len(tensors),
        "parameters": sum(t.numel() for t in tensors),
        "MB": round(sum(t.nbytes for t in tensors) / 1e6, 2),
    }
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(folder, segment_bytes=64 << 20)
        views = [recorder.view(t.data_ptr(), t.nbytes) for t in tensors]
        digester = Digester(recorder.view)

        def digest(which: list[torch.Tensor]) -> None:
            with quiet():
                digester.many(which)

        found["xxh3-128 alone"] = timed(lambda: [xxh3_128_intdigest(view) for view in views])
        found["digests"] = timed(lambda: digest(tensors))
        found["digests of as many tiny tensors"] = timed(lambda: digest(tiny))
        found["per tensor beyond hashing, us"] = round(
            found["digests of as many tiny tensors"]["median_ms"] * 1e3 / len(tensors), 2
        )
        for title, attributes, moment in (
            ("step before: data, grad, facts", (), "enter"),
            ("step after: data, state, groups", (), "exit"),
            ("step after: data only", ("data",), "exit"),
        ):
            observer = make_observer(recorder, attributes)
            observer.module_called(model, 0)
            point = observation_points(observer)["Optimizer:step"]
            assert point.enter is not None
            assert point.exit is not None
            enter, leave = point.enter, point.exit
            args = (optimizer,)
            if moment == "enter":

                def work(enter: Any = enter, observer: Any = observer, args: Any = args) -> None:
                    enter(None, args, None, 0)
                    observer.leave("step")
            else:
                enter(None, args, None, 0)

                def work(leave: Any = leave, args: Any = args) -> None:
                    leave(None, True, args, None, None, None, 0)

            found[title] = timed(work)
        points = observation_points(observer := make_observer(recorder))
        observer.module_called(model, 0)
        call = points["Module:__call__"].enter
        assert call is not None
        found["outermost module call, us"] = round(
            timed(lambda: [call(None, (model,), None, 0) for _ in range(1000)])["median_ms"], 3
        )
        found["random generators"] = timed(observer.step_begins)
        found["faults"] = recorder.faults()
        recorder.close()
    if "--json" in sys.argv:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:40s} {value}")


if __name__ == "__main__":
    main()

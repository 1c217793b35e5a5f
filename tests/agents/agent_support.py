"""What the tests for agents share: a tiny training, right and wrong, and processes that must be gone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

TRAIN = '''
"""A tiny training, alone or on several ranks."""

import argparse
import os

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()
torch.manual_seed(options.seed)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
rank = int(os.environ.get("RANK", 0))
if "RANK" in os.environ:
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
# HERE
generator = torch.Generator().manual_seed(options.seed + rank)
for step in range(options.steps):
    batch, labels = torch.rand(16, 8, generator=generator), torch.randint(0, 4, (16,), generator=generator)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(batch), labels)
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.4f}", flush=True)
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
'''

FAULT = "model[2] = nn.Linear(16, 4)  # the optimizer holds the old head\n"

SLEEPER = '''
"""Starts a child with a session of its own, as torchrun does, says who both are, and sleeps."""

import os
import subprocess
import sys
import time

child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
with open("pids.new", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename("pids.new", "pids")
print("sleeping", flush=True)
time.sleep(300)
'''


def pids(folder: Path, seconds: float = 60) -> list[int]:
    """What the sleeper in ``folder`` said."""
    until = time.monotonic() + seconds
    while not (folder / "pids").exists():
        assert time.monotonic() < until, "the sleeper did not start"
        time.sleep(0.05)
    return [int(word) for word in (folder / "pids").read_text().split()]


def living(numbers: Iterable[int]) -> list[int]:
    """Those of the processes that are there and no zombies."""
    found = []
    for pid in numbers:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.append(pid)
    return found


def gone(numbers: Iterable[int], seconds: float = 15) -> bool:
    """Whether the processes end in time."""
    until = time.monotonic() + seconds
    while living(numbers):
        if time.monotonic() >= until:
            return False
        time.sleep(0.05)
    return True


def environment() -> dict[str, str]:
    """Ours, with one thread and no colours."""
    kept = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "TRAINCHECK_RUN")}
    return {**kept, "OMP_NUM_THREADS": "1"}

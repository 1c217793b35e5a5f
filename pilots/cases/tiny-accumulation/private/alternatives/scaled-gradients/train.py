# traincheck-canary-tiny-accumulation-c41d7e0a92f8
"""Trains the next-token model of this folder; README.md says what an update is."""

import argparse
import json

import torch
from data import PADDING, VOCABULARY, micro_batches
from model import NextToken
from torch.nn import functional


def main():
    """Train as the configuration says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    with open(parser.parse_args().config) as file:
        config = json.load(file)
    torch.manual_seed(config["seed"])
    model = NextToken(VOCABULARY)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["learning_rate"], momentum=0.9)
    batches = micro_batches(config)
    for step in range(1, config["steps"] + 1):
        for group in optimizer.param_groups:
            group["lr"] = config["learning_rate"] * min(1.0, step / max(1, config["warmup"]))
        loss, tokens = update(model, optimizer, batches, config["accumulation"])
        print(f"update {step}: loss {loss:.4f}, {tokens} tokens", flush=True)


def update(model, optimizer, batches, accumulation):
    """One step over ``accumulation`` micro-batches: gradients of the sum, divided by the tokens before the step."""
    optimizer.zero_grad()
    total, count = 0.0, 0
    for _ in range(accumulation):
        tokens, targets = next(batches)
        logits = model(tokens)
        loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PADDING, reduction="sum")
        loss.backward()
        total += loss.item()
        count += int((targets != PADDING).sum())
    for parameter in model.parameters():
        parameter.grad.div_(count)
    optimizer.step()
    return total / count, count


if __name__ == "__main__":
    main()

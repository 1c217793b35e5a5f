# traincheck-canary-tiny-clean-8be5d3176f20
"""Trains the network of this folder; README.md says what an update is."""

import argparse
import json

import torch
from data import INPUTS, samples
from model import Network
from torch.nn import functional


def groups(model, weight_decay):
    """Weight matrices decay, biases and the norm do not."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def main():
    """Train as the configuration says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    with open(parser.parse_args().config) as file:
        config = json.load(file)
    torch.manual_seed(config["seed"])
    model = Network(INPUTS)
    optimizer = torch.optim.AdamW(groups(model, config["weight_decay"]), lr=config["learning_rate"])
    batches = samples(config)
    for step in range(1, config["steps"] + 1):
        for group in optimizer.param_groups:
            group["lr"] = config["learning_rate"] * min(1.0, step / max(1, config["warmup"]))
        inputs, values = next(batches)
        optimizer.zero_grad()
        loss = functional.mse_loss(model(inputs), values)
        loss.backward()
        optimizer.step()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config["clip"])
        print(f"update {step}: loss {loss.item():.4f}, norm {norm:.4f}", flush=True)


if __name__ == "__main__":
    main()

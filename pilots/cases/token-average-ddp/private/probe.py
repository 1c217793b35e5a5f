"""canary-token-average-93c2b6f0ad1e4877: the first update's gradient against one mean over all its answer tokens."""

import copy
import hashlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
import train
import transformers
from torch.optim.optimizer import register_optimizer_step_pre_hook

from traincheck.pilot.showing import report

gradients: list[dict[str, torch.Tensor]] = []
batches: list[dict[str, torch.Tensor]] = []
start = transformers.Trainer.train
one_pass = transformers.Trainer.training_step


def digest(tensors) -> str:
    """SHA-256 over tensors, in order."""
    return hashlib.sha256(b"".join(t.detach().contiguous().numpy().tobytes() for t in tensors)).hexdigest()


def training_step(self, model, inputs, *rest, **options):
    """The Trainer's, and what it is given in the first update is kept."""
    if not gradients:
        batches.append({name: value.clone() for name, value in inputs.items()})
    return one_pass(self, model, inputs, *rest, **options)


def reference(model, weights, every) -> dict[str, torch.Tensor]:
    """Gradient of the mean over all answer tokens of these batches, by the plain model of Transformers."""
    plain = next(kind for kind in type(model).__mro__ if kind.__module__.startswith("transformers."))(model.config)
    plain.load_state_dict(weights)
    total, tokens = torch.zeros(()), 0
    for batch in every:
        logits = plain(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
        targets = batch["labels"][:, 1:]
        total = total + F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum")
        tokens += int((targets != -100).sum())
    (total / tokens).backward()
    return {name: parameter.grad for name, parameter in plain.named_parameters()}


def trained(self, *rest, **options):
    """The Trainer's training, measured."""
    weights = copy.deepcopy(self.model.state_dict())
    named = dict(self.model.named_parameters())

    def before(optimizer, arguments, given) -> None:
        if not gradients:
            gradients.append({name: parameter.grad.clone() for name, parameter in named.items()})

    register_optimizer_step_pre_hook(before)
    done = start(self, *rest, **options)
    every: list = [None] * dist.get_world_size()
    dist.all_gather_object(every, batches)
    right = reference(self.model, weights, [batch for rank in every for batch in rank])
    found = gradients[0]
    error = sum((found[name] - right[name]).square().sum().double() for name in right).sqrt()
    size = sum(right[name].square().sum().double() for name in right).sqrt()
    report(
        {
            "tokens": [[int((batch["labels"][:, 1:] != -100).sum()) for batch in rank] for rank in every],
            "error": float(error / size),
            "norm_ratio": float(sum(g.square().sum().double() for g in found.values()).sqrt() / size),
            "gradients": digest(found.values()),
            "parameters": digest(named.values()),
            "losses": [entry["loss"] for entry in self.state.log_history if "loss" in entry],
        }
    )
    return done


transformers.Trainer.training_step = training_step
transformers.Trainer.train = trained
train.main()

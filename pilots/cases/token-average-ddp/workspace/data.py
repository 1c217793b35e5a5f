"""Generated questions and answers."""

import torch
from settings import Settings
from torch.utils.data import Dataset

QUESTION = 8
PAD = 0
IGNORED = -100


class Answers(Dataset):
    """Examples: question, answer, padding up to the longest answer there may be."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def __len__(self) -> int:
        return self.settings.examples

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        lengths = self.settings.answers
        answer = lengths[index % len(lengths)]
        used, whole = QUESTION + answer, QUESTION + max(lengths)
        generator = torch.Generator().manual_seed(10_000 * self.settings.seed + index)
        ids = torch.full((whole,), PAD)
        ids[:used] = torch.randint(1, self.settings.vocabulary, (used,), generator=generator)
        labels = torch.full((whole,), IGNORED)
        labels[QUESTION:used] = ids[QUESTION:used]
        mask = torch.zeros(whole, dtype=torch.long)
        mask[:used] = 1
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def collate(examples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Examples as one batch: each field (examples, length)."""
    return {name: torch.stack([example[name] for example in examples]) for name in examples[0]}

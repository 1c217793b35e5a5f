"""A small corpus and a tokenizer for it, seeded: nothing is downloaded, and the files are hashed by the study."""

from __future__ import annotations

import json
import random
from pathlib import Path

_TEXT = (
    "a after all and as at batch before bias bit bug but by check each error every fails first for from gradient "
    "has healthy holds if in is it its layer learns loss model no of on one only optimizer or parameter rank "
    "reads same says seen shape silent slow step still tensor that the then this to token trace train true update "
    "value wait was watches weight what when which with wrong"
)
WORDS = _TEXT.split()


def documents(count: int, seed: int) -> list[str]:
    """``count`` texts of 40 to 200 words. The same seed gives the same texts on every machine."""
    source = random.Random(seed)
    return [" ".join(source.choice(WORDS) for _ in range(source.randint(40, 200))) for _ in range(count)]


def tokenizer(texts: list[str], folder: Path, entries: int) -> None:
    """Train a byte-level BPE on the texts and write it as Hugging Face tokenizers are laid out."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    folder.mkdir(exist_ok=True)
    built = Tokenizer(models.BPE())
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=entries,
        special_tokens=["<|begin_of_text|>", "<|end_of_text|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    built.train_from_iterator(texts, trainer)
    built.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names) + "\n")

# canary-token-average-93c2b6f0ad1e4877
"""The models: those of Transformers, without the columns that are padding in the whole batch."""

import torch
from settings import Settings
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel


class TrimsPadding:
    """Mix-in before a causal language model: it sees as many columns as the longest row needs."""

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor | None = None,
        **options,
    ):
        """Fields of a batch, each (rows, length), padded on the right; ``options`` are for the model."""
        width = int(attention_mask.sum(dim=1).max())
        return super().forward(
            input_ids=input_ids[:, :width],
            attention_mask=attention_mask[:, :width],
            labels=None if labels is None else labels[:, :width],
            **options,
        )


class TrimmedGPT2LMHeadModel(TrimsPadding, GPT2LMHeadModel):
    """GPT-2."""


class TrimmedLlamaForCausalLM(TrimsPadding, LlamaForCausalLM):
    """Llama."""


def build(settings: Settings) -> PreTrainedModel:
    """The model of the configuration, with weights drawn by its seed."""
    torch.manual_seed(settings.seed)
    if settings.architecture == "gpt2":
        return TrimmedGPT2LMHeadModel(
            GPT2Config(
                vocab_size=settings.vocabulary,
                n_positions=128,
                n_embd=settings.width,
                n_layer=settings.layers,
                n_head=4,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
            )
        )
    return TrimmedLlamaForCausalLM(
        LlamaConfig(
            vocab_size=settings.vocabulary,
            hidden_size=settings.width,
            intermediate_size=2 * settings.width,
            num_hidden_layers=settings.layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=128,
        )
    )

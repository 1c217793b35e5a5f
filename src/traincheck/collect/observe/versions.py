"""Versions of the packages that take part in training, of those already imported only."""

from __future__ import annotations

import importlib.metadata
import platform
import sys

PACKAGES = {
    "torch": "torch",
    "numpy": "numpy",
    "transformers": "transformers",
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
    "lightning": "lightning",
    "pytorch_lightning": "pytorch-lightning",
    "datasets": "datasets",
    "safetensors": "safetensors",
    "peft": "peft",
    "trl": "trl",
    "torchvision": "torchvision",
    "torchao": "torchao",
    "torchtitan": "torchtitan",
    "megatron": "megatron-core",
    "bitsandbytes": "bitsandbytes",
    "flash_attn": "flash-attn",
    "triton": "triton",
    "timm": "timm",
    "sklearn": "scikit-learn",
    "traincheck": "traincheck",
}
"""Module -> distribution."""


def versions() -> dict[str, str]:
    """Distribution -> version, and ``python``. Imports nothing."""
    found = {"python": platform.python_version()}
    for module, distribution in PACKAGES.items():
        if module not in sys.modules:
            continue
        try:
            found[distribution] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            version = getattr(sys.modules[module], "__version__", None)
            if isinstance(version, str):
                found[distribution] = version
    torch = sys.modules.get("torch")
    cuda = getattr(getattr(torch, "version", None), "cuda", None)
    if isinstance(cuda, str):
        found["cuda"] = cuda
    return found

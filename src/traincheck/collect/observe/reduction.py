"""The digest of tensors that live on a device: an on-device, position-dependent reduction. **Not yet run on a GPU.**

Pure torch integer arithmetic over a view of the bytes, so the same code is tested on CPU tensors. For 64-bit lanes
``x[i]`` of a tensor:

    a = sum_i  mix_a(x[i] + (i + 1) * G)        b = sum_i  mix_b(x[i] ^ (i + 1) * H)        (all modulo 2**64)

and the digest is xxh3-128 of (a, b, number of bytes). ``mix`` is a bijection of 64-bit words, so a change within any
one lane always changes
``a``; sums make the result independent of the order in which the device adds, hence deterministic. Many tensors go
through the device in
groups of at most ``GROUP`` lanes (a few temporaries of that size), and all results are fetched with one copy per
device.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import torch
from xxhash import xxh3_128_intdigest

GROUP = 4 << 20
"""Lanes (8 bytes each) mixed at once: bounds the temporaries to about 4 x 32 MB."""


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


_G, _H = _signed(0x9E3779B97F4A7C15), _signed(0xD1B54A32D192ED03)
_MIX_A = (30, _signed(0xBF58476D1CE4E5B9), 27, _signed(0x94D049BB133111EB), 31)
_MIX_B = (33, _signed(0xFF51AFD7ED558CCD), 33, _signed(0xC4CEB9FE1A85EC53), 33)
_AS_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


def reduce_many(tensors: Sequence[torch.Tensor]) -> list[int]:
    """128-bit digests of strided tensors on any devices, in order. The values differ from the CPU path's: compare
    like with like.
    """
    by_device: dict[torch.device, list[int]] = {}
    for index, tensor in enumerate(tensors):
        by_device.setdefault(tensor.device, []).append(index)
    results = [0] * len(tensors)
    for device, indices in by_device.items():
        sums = _reduce([tensors[i] for i in indices], device)
        for i, (a, b) in zip(indices, sums, strict=True):
            results[i] = int(xxh3_128_intdigest(struct.pack("<qqq", a, b, tensors[i].nbytes)))
    return results


def _reduce(tensors: list[torch.Tensor], device: torch.device) -> list[tuple[int, int]]:
    pieces: list[tuple[int, torch.Tensor, int]] = []  # (tensor, lanes, position of the first lane)
    for index, tensor in enumerate(tensors):
        lanes = _lanes(tensor)
        for start in range(0, lanes.numel(), GROUP):
            pieces.append((index, lanes[start : start + GROUP], start))
    owners: list[int] = []
    partial: list[torch.Tensor] = []
    group: list[tuple[int, torch.Tensor, int]] = []
    size = 0
    for piece in pieces:
        if group and size + piece[1].numel() > GROUP:
            _mix_group(group, device, owners, partial)
            group, size = [], 0
        group.append(piece)
        size += piece[1].numel()
    if group:
        _mix_group(group, device, owners, partial)
    sums = [(0, 0)] * len(tensors)
    if partial:
        for owner, (a, b) in zip(owners, torch.stack(partial).tolist(), strict=True):  # the one fetch
            before = sums[owner]
            sums[owner] = (_signed((before[0] + a) % (1 << 64)), _signed((before[1] + b) % (1 << 64)))
    return sums


def _lanes(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's logical bytes as int64 lanes; a copy only if it is not contiguous, not aligned, or its size is
    odd (zero padded).
    """
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    flat = tensor.view(_AS_INTEGER[tensor.element_size()]).contiguous().view(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).view(-1)
    data = flat.view(torch.uint8)
    nbytes = data.numel()
    if nbytes % 8 == 0 and data.storage_offset() % 8 == 0:
        return data.view(torch.int64)
    padded = torch.zeros((nbytes + 7) // 8 * 8, dtype=torch.uint8, device=tensor.device)
    padded[:nbytes].copy_(data)
    return padded.view(torch.int64)


def _mix_group(
    group: list[tuple[int, torch.Tensor, int]], device: torch.device, owners: list[int], partial: list[torch.Tensor]
) -> None:
    longest = max(start + lanes.numel() for _, lanes, start in group)
    first = min(start for _, _, start in group)
    counter = torch.arange(first + 1, longest + 1, dtype=torch.int64, device=device)
    if len(group) == 1:
        _, lanes, start = group[0]
        words, position = lanes, counter[start - first : start - first + lanes.numel()]
    else:
        words = torch.cat([lanes for _, lanes, _ in group])
        position = torch.cat([counter[start - first : start - first + lanes.numel()] for _, lanes, start in group])
    a = _mix(position.mul(_G).add_(words), _MIX_A)
    b = _mix(position.mul(_H).bitwise_xor_(words), _MIX_B)
    offset = 0
    for index, lanes, _ in group:
        end = offset + lanes.numel()
        partial.append(torch.stack((a[offset:end].sum(), b[offset:end].sum())))
        owners.append(index)
        offset = end


def _mix(words: torch.Tensor, constants: tuple[int, int, int, int, int]) -> torch.Tensor:
    """A bijection of 64-bit words, in place: xor-shift, multiply, xor-shift, multiply, xor-shift."""
    first, multiply, second, multiply_again, third = constants
    for shift, factor in ((first, multiply), (second, multiply_again), (third, None)):
        # >> is arithmetic on int64: mask away the copies of the sign
        words.bitwise_xor_(words.bitwise_right_shift(shift).bitwise_and_((1 << (64 - shift)) - 1))
        if factor is not None:
            words.mul_(factor)
    return words

#!/usr/bin/env python3
"""Write a damaged copy of a GGUF: same size, same names, other bytes. Tests use it to show what verification catches.

    python tools/damage_gguf.py MODEL.gguf DAMAGED.gguf swap blk.14.ffn_up.weight blk.15.ffn_up.weight
    python tools/damage_gguf.py MODEL.gguf DAMAGED.gguf noise 0.1
    python tools/damage_gguf.py MODEL.gguf DAMAGED.gguf nibbles blk.15.attn_v.weight
    python tools/damage_gguf.py MODEL.gguf DAMAGED.gguf zero blk.15.attn_v.weight
    python tools/damage_gguf.py MODEL.gguf DAMAGED.gguf template '<|im_end|>' '<|no_end|>'
    python tools/damage_gguf.py MODEL.gguf DAMAGED.gguf rope 10000

Read :func:`damage`.

Does not do: repairing anything.
"""

from __future__ import annotations

import argparse
import shutil
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np

Q4_1_BLOCK_BYTES = 20  # scale and minimum as fp16, then 16 bytes of two 4-bit values each
TEMPLATE_KEY = "tokenizer.chat_template"
ROPE_KEY = "llama.rope.freq_base"


def _bytes_of(view: np.memmap, tensor: gguf.ReaderTensor) -> np.ndarray:
    return view[tensor.data_offset : tensor.data_offset + tensor.n_bytes]


def swap(view: np.memmap, first: gguf.ReaderTensor, second: gguf.ReaderTensor) -> None:
    """Exchange the data of two tensors of one size, as a wrong offset table would."""
    if first.n_bytes != second.n_bytes:
        raise ValueError(f"{first.name} has {first.n_bytes} bytes, {second.name} {second.n_bytes}")
    kept = _bytes_of(view, first).copy()
    _bytes_of(view, first)[:] = _bytes_of(view, second)
    _bytes_of(view, second)[:] = kept


def add_noise(view: np.memmap, tensors: Sequence[gguf.ReaderTensor], share: float, seed: int = 0) -> None:
    """Add noise to every Q4_1 tensor, its deviation a share of the tensor's own, and quantize again: other weights."""
    random = np.random.default_rng(seed)
    for tensor in tensors:
        if tensor.tensor_type is not gguf.GGMLQuantizationType.Q4_1:
            continue
        weights = gguf.dequantize(tensor.data, tensor.tensor_type)
        noisy = weights + share * weights.std() * random.standard_normal(weights.shape, dtype=np.float32)
        _bytes_of(view, tensor)[:] = gguf.quantize(noisy.astype(np.float32), tensor.tensor_type).reshape(-1)


def swap_nibbles(view: np.memmap, tensor: gguf.ReaderTensor) -> None:
    """Exchange the two 4-bit values of every byte, as a kernel that unpacks them in the wrong order would."""
    if tensor.tensor_type is not gguf.GGMLQuantizationType.Q4_1:
        raise ValueError(f"{tensor.name} is {tensor.tensor_type.name}, expected Q4_1")
    blocks = _bytes_of(view, tensor).reshape(-1, Q4_1_BLOCK_BYTES)
    values = blocks[:, 4:]
    blocks[:, 4:] = (values >> 4) | (values << 4)


def replace_in_template(view: np.memmap, reader: gguf.GGUFReader, old: str, new: str) -> None:
    """Write another text of the same length into the chat template."""
    field = reader.fields[TEMPLATE_KEY]
    part = field.parts[field.data[0]]
    template, find, put = part.tobytes(), old.encode(), new.encode()
    if len(find) != len(put) or find not in template:
        raise ValueError(f"{old!r} is not in the template, or {new!r} has another length")
    start = view.tobytes().index(template)
    view[start : start + len(template)] = np.frombuffer(template.replace(find, put), np.uint8)


def set_rope_base(view: np.memmap, base: float) -> None:
    """Write another rotary base into the header."""
    key = ROPE_KEY.encode()
    place = view[: 1 << 20].tobytes().index(key) + len(key)
    kind = int.from_bytes(view[place : place + 4].tobytes(), "little")
    if kind != gguf.GGUFValueType.FLOAT32:
        raise ValueError(f"{ROPE_KEY} has type {kind}, expected FLOAT32")
    view[place + 4 : place + 8] = np.frombuffer(struct.pack("<f", base), np.uint8)


def damage(source: Path, target: Path, kind: str, arguments: Sequence[str]) -> None:
    """Copy a file and damage the copy in one way.

    Raises:
        ValueError: The kind is unknown, or its arguments do not fit the file.
        KeyError: The file has no tensor of that name.
    """
    reader = gguf.GGUFReader(source)
    tensor_by_name = {tensor.name: tensor for tensor in reader.tensors}
    shutil.copyfile(source, target)
    view = np.memmap(target, np.uint8, "r+")
    match kind:
        case "swap":
            swap(view, *(tensor_by_name[name] for name in arguments))
        case "noise":
            add_noise(view, reader.tensors, float(arguments[0]))
        case "nibbles":
            swap_nibbles(view, tensor_by_name[arguments[0]])
        case "zero":
            _bytes_of(view, tensor_by_name[arguments[0]])[:] = 0
        case "template":
            replace_in_template(view, reader, *arguments)
        case "rope":
            set_rope_base(view, float(arguments[0]))
        case _:
            raise ValueError(f"no such damage: {kind}")
    view.flush()


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("kind", choices=("swap", "noise", "nibbles", "zero", "template", "rope"))
    parser.add_argument("arguments", nargs="*")
    given = parser.parse_args()
    try:
        damage(given.source, given.target, given.kind, given.arguments)
    except (OSError, KeyError, TypeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

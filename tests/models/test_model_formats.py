"""Both tables of storage types, row by row against the packages that define them."""

from __future__ import annotations

import json
import struct

import gguf
import pytest
import safetensors
from gguf.constants import GGML_QUANT_SIZES

from freehold.models.formats import gguf_formats, removed_gguf_types, safetensors_bits


def test_every_gguf_type_has_the_package_sizes_and_none_is_left_out() -> None:
    ours = {f.name: (f.number, f.weights_per_block, f.bytes_per_block) for f in gguf_formats().values()}
    theirs = {kind.name: (int(kind), *GGML_QUANT_SIZES[kind]) for kind in gguf.GGMLQuantizationType}
    assert ours == theirs


def test_removed_types_are_none_of_the_current_ones() -> None:
    assert not removed_gguf_types().keys() & gguf_formats().keys()
    assert removed_gguf_types()[31] == "Q4_0_4_4"


@pytest.mark.parametrize(
    ("number", "bits"),
    [
        (0, 32.0),
        (3, 5.0),  # 20 bytes · 8 / 32
        (10, 2.625),  # 84 · 8 / 256
        (19, 1.5625),  # 50 · 8 / 256
    ],
)
def test_bits_per_weight_include_the_scales(number: int, bits: float) -> None:
    assert gguf_formats()[number].bits_per_weight == bits


def accepts(kind: str, num_bytes: int) -> bool:
    """Whether the safetensors package takes 8 elements of a type in that many bytes."""
    header = json.dumps({"t": {"dtype": kind, "shape": [8], "data_offsets": [0, num_bytes]}}).encode()
    try:
        safetensors.deserialize(struct.pack("<Q", len(header)) + header + bytes(num_bytes))
    except safetensors.SafetensorError:
        return False
    return True


@pytest.mark.parametrize("kind", sorted(safetensors_bits()))
def test_every_safetensors_type_has_the_package_size(kind: str) -> None:
    assert [n for n in range(1, 65) if accepts(kind, n)] == [safetensors_bits()[kind]]  # 8 elements: bytes = bits


def test_no_safetensors_type_is_left_out() -> None:
    header = json.dumps({"t": {"dtype": "Q9", "shape": [8], "data_offsets": [0, 8]}}).encode()
    with pytest.raises(safetensors.SafetensorError) as caught:
        safetensors.deserialize(struct.pack("<Q", len(header)) + header + bytes(8))
    listed = str(caught.value).partition("expected one of ")[2].partition(" at line")[0]
    assert {name.strip(" `") for name in listed.split(",")} == set(safetensors_bits())

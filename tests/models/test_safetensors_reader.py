"""Reading safetensors headers: as the safetensors package does, and with a clear error where a file is not good."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import time
import tracemalloc
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import safetensors
from safetensors.numpy import save_file

from freehold.errors import CheckpointError
from freehold.models.bytesource import FileSource
from freehold.models.formats import RawTensor
from freehold.models.safetensors import SafetensorsHeader, read_safetensors


def read(path: Path) -> SafetensorsHeader:
    with FileSource(path) as file:
        return read_safetensors(file)


def write(path: Path, header: Any, data_bytes: int) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(data_bytes))
    return path


def entry(kind: str, shape: Any, begin: Any, end: Any) -> dict[str, Any]:
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


def fails(path: Path, *parts: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        read(path)
    text = f"{caught.value.what} | {caught.value.why}"
    for part in parts:
        assert part in text
    with pytest.raises(safetensors.SafetensorError):
        safetensors.deserialize(path.read_bytes())


def test_a_file_of_the_safetensors_package_reads_as_that_package_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    arrays = {
        "model.a": np.zeros((3, 5), np.float32),
        "model.b": np.zeros((7,), np.float16),
        "model.c": np.zeros((2, 2, 2), np.int64),
        "model.d": np.zeros((9,), np.uint8),
        "model.scalar": np.array(1.0, np.float32),
        "model.empty": np.zeros((0, 4), np.float32),
    }
    save_file(arrays, path, metadata={"format": "pt"})
    header = read(path)
    with safetensors.safe_open(path, "numpy") as theirs:
        expected = {name: tuple(theirs.get_slice(name).get_shape()) for name in theirs.keys()}  # noqa: SIM118
    assert {t.name: t.shape for t in header.tensors} == expected
    assert {t.name: t.bytes for t in header.tensors} == {n: a.nbytes for n, a in arrays.items()}
    assert {t.name: t.type for t in header.tensors} == {
        "model.a": "F32",
        "model.b": "F16",
        "model.c": "I64",
        "model.d": "U8",
        "model.scalar": "F32",
        "model.empty": "F32",
    }
    assert header.header_bytes + sum(t.bytes for t in header.tensors) == path.stat().st_size
    assert header.header_sha256 == hashlib.sha256(path.read_bytes()[: header.header_bytes]).hexdigest()


def test_space_around_the_header_is_read_over(tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors", b'  {"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   ', 1)
    assert [t.name for t in read(path).tensors] == ["a"]
    assert [name for name, _ in safetensors.deserialize(path.read_bytes())] == ["a"]


def test_low_bit_types_take_the_bytes_of_the_arithmetic(tmp_path: Path) -> None:
    header = {
        "a": entry("F8_E4M3", [4, 8], 0, 32),
        "b": entry("F8_E5M2", [4, 8], 32, 64),
        "c": entry("F4", [4, 8], 64, 80),  # 32 elements · 4 / 8
        "d": entry("F6_E2M3", [4, 8], 80, 104),  # 32 · 6 / 8
        "e": entry("BF16", [4, 8], 104, 168),
    }
    path = write(tmp_path / "m.safetensors", header, 168)
    assert [t.bytes for t in read(path).tensors] == [32, 32, 16, 24, 64]
    assert len(safetensors.deserialize(path.read_bytes())) == 5


def test_tensors_come_in_the_order_of_their_data(tmp_path: Path) -> None:
    header = {"late": entry("U8", [3], 2, 5), "early": entry("U8", [2], 0, 2), "none": entry("U8", [0], 2, 2)}
    names = [t.name for t in read(write(tmp_path / "m.safetensors", header, 5)).tensors]
    assert names == ["early", "none", "late"]


def test_the_quick_way_and_the_careful_way_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = {"__metadata__": {"a": "b"}, **{f"t.{i}": entry("F32", [i % 3, 2], 0, 0) for i in range(9)}}
    position = 0
    for i in range(9):
        header[f"t.{i}"]["data_offsets"] = [position, position + (i % 3) * 8]
        position += (i % 3) * 8
    path = write(tmp_path / "m.safetensors", header, position)
    quick = read(path)
    write(tmp_path / "c.safetensors", json.dumps(header).replace("t.8", "t\\u002e8").encode(), position)
    assert read(tmp_path / "c.safetensors").tensors == quick.tensors
    assert quick.tensors[1] == RawTensor("t.1", "F32", (1, 2), 8, 0)


@pytest.mark.parametrize(
    ("header", "data_bytes", "says"),
    [
        ({"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 4, 12)}, 12, "overlap"),
        ({"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 12, 20)}, 20, "hole"),
        ({"a": entry("F32", [2], 4, 12)}, 12, "hole"),
        ({"a": entry("F32", [2], 0, 8)}, 7, "truncated"),
        ({"a": entry("F32", [2], 0, 8)}, 9, "longer than its header says"),
        ({"a": entry("F32", [3], 0, 8)}, 8, "takes 12 bytes, its data_offsets hold 8"),
        ({"a": entry("F4", [3], 0, 2)}, 2, "takes 1 4/8 bytes"),
        ({"a": entry("F32", [2], 8, 0)}, 8, "data_offsets"),
        ({"a": entry("F32", [2], -8, 0)}, 8, "data_offsets"),
        ({"a": entry("F32", [2], 0, 8.0)}, 8, "data_offsets"),
        ({"a": entry("F32", [2.0], 0, 8)}, 8, "no whole number"),
        ({"a": entry("F32", [True, 2], 0, 8)}, 8, "no whole number"),
        ({"a": entry("F32", [-2], 0, 8)}, 8, "no whole number"),
        ({"a": entry("F32", [2**64], 0, 8)}, 8, "no whole number"),
        ({"a": entry("F32", [2**62] * 9, 0, 8)}, 8, "contradicts itself"),
        ({"a": entry("F32", "2", 0, 8)}, 8, "shape"),
        ({"a": entry("F33", [2], 0, 8)}, 8, "unknown type F33"),
        ({"a": entry(["F32"], [2], 0, 8)}, 8, "unknown type"),  # type: ignore[arg-type]
        ({"a": {"dtype": "F32", "shape": [2]}}, 8, "holds dtype, shape"),
        ({"a": {}}, 0, "holds nothing"),
        ({"a": 3}, 0, "holds nothing"),
        ({"a": [1, 2, 3]}, 0, "holds nothing"),
        ({"__metadata__": {"format": 1}}, 0, "__metadata__"),
        ([], 0, "no JSON object"),
        (b"[" * 20_000, 0, "no JSON"),
        (b'{"a":', 0, "no JSON"),
        (b'{"\xff":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1, "not UTF-8"),
        (b'{"\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1, "surrogate"),
        (b'{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1, "once each"),
        (b'{"a":{"dtype":"U8","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,1]}}', 1, "no JSON"),
    ],
)
def test_headers_that_the_package_refuses_are_refused_with_a_reason(
    tmp_path: Path, header: Any, data_bytes: int, says: str
) -> None:
    fails(write(tmp_path / "m.safetensors", header, data_bytes), says)


def test_a_name_given_twice_is_an_error_though_the_package_takes_the_last(tmp_path: Path) -> None:
    one = b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
    path = write(tmp_path / "m.safetensors", b"{" + one + b"," + one + b"}", 1)
    with pytest.raises(CheckpointError) as caught:
        read(path)
    assert "a is there twice" in caught.value.why


def test_a_shape_of_fractions_is_not_hidden_by_an_equal_shape(tmp_path: Path) -> None:
    header = {"a": entry("U8", [1], 0, 1), "b": entry("U8", [1.0], 1, 2)}
    fails(write(tmp_path / "m.safetensors", header, 2), "b", "no whole number")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "found 0 bytes"),
        (b"1234567", "found 7 bytes"),
        (b"<!DOCTYPE html><html></html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"GGUF\x03\0\0\0" + bytes(40), "GGUF file"),
        (b"PK\x03\x04" + b"\x14\0\0\x08" + bytes(50), "zip archive"),
        (struct.pack("<Q", 2**63), "100,000,000"),
        (struct.pack("<Q", 1000) + b"{}", "expected at least 1,008"),
    ],
)
def test_what_is_no_safetensors_file(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    fails(path, says)


def test_every_cut_of_a_file_is_an_error(made: ModuleType, tmp_path: Path) -> None:
    tensors = [made.Made("a", (5, 7), "F32"), made.Made("b", (3,), "BF16")]
    path = made.write_safetensors(tmp_path / "m.safetensors", tensors)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        fails(path)


def test_an_absurd_length_costs_nothing_even_in_a_huge_file(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", 300 * 10**9))
    os.truncate(path, 400 * 10**9)
    tracemalloc.start()
    begun = time.process_time()
    with pytest.raises(CheckpointError, match="no safetensors file"):
        read(path)
    assert time.process_time() - begun < 1.0
    assert tracemalloc.get_traced_memory()[1] < 2**21
    tracemalloc.stop()

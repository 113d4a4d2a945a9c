"""Reading GGUF headers: as the gguf package does where the file is good, and with a clear error where it is not."""

from __future__ import annotations

import hashlib
import os
import struct
import time
import tracemalloc
from pathlib import Path
from types import ModuleType
from typing import Any

import gguf
import numpy as np
import pytest

from freehold.errors import CheckpointError, FreeholdError, InputError, PrerequisiteError
from freehold.models.bytesource import FileSource
from freehold.models.gguf import GgufHeader, Skipped, read_gguf

META = {"general.architecture": "llama", "llama.block_count": 2}


def read(path: Path) -> GgufHeader:
    with FileSource(path) as file:
        return read_gguf(file)


def fails(path: Path, *parts: str) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        read(path)
    text = f"{caught.value.what} | {caught.value.why} | {caught.value.fix}"
    for part in parts:
        assert part in text
    assert caught.value.fix
    return caught.value


def tensors_of(made: ModuleType) -> list[Any]:
    return [
        made.Made("token_embd.weight", (64, 256), "F16"),
        made.Made("blk.0.attn_q.weight", (256, 256), "Q4_K"),
        made.Made("blk.0.attn_norm.weight", (256,), "F32"),
        made.Made("blk.0.ffn_gate_exps.weight", (4, 32, 256), "IQ1_S"),
        made.Made("output.weight", (64, 256), "Q6_K"),
    ]


# --- good files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("endian", [gguf.GGUFEndian.LITTLE, gguf.GGUFEndian.BIG])
def test_a_file_of_the_gguf_package_reads_as_that_package_reads_it(tmp_path: Path, endian: gguf.GGUFEndian) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=endian)
    writer.add_block_count(2)
    writer.add_token_list([f"token {i}" for i in range(3000)])
    writer.add_token_scores([0.5] * 3000)
    writer.add_array("llama.attention.head_count_kv", [0, 8, 0])
    writer.add_array("general.languages", ["en", "fr"])
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_float32("llama.rope.freq_base", 10000.0)
    writer.add_chat_template("{{ messages }} ü")
    writer.add_tensor("a.weight", np.zeros((3, 64), np.float32))
    writer.add_tensor("b.weight", np.zeros((2, 5, 32), np.float16))
    writer.add_tensor("q.weight", np.zeros((7, 36), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    header = read(path)

    theirs = gguf.GGUFReader(path)
    assert [(t.name, t.type, t.shape, t.bytes) for t in header.tensors] == [
        (t.name, t.tensor_type.name, tuple(int(n) for n in reversed(t.shape)), t.n_bytes) for t in theirs.tensors
    ]
    assert header.byte_order == ("big" if endian is gguf.GGUFEndian.BIG else "little")
    assert header.version == 3
    assert header.metadata["llama.block_count"] == 2
    assert header.metadata["llama.attention.head_count_kv"] == (0, 8, 0)
    assert header.metadata["tokenizer.ggml.add_bos_token"] is True
    assert header.metadata["llama.rope.freq_base"] == 10000.0
    assert header.metadata["tokenizer.chat_template"] == "{{ messages }} ü"
    assert header.metadata["tokenizer.ggml.tokens"] == Skipped(count=3000)
    assert header.metadata["tokenizer.ggml.scores"] == (0.5,) * 3000
    assert header.stray_bytes == 0
    data_start = -(-header.header_bytes // 32) * 32
    assert data_start == theirs.data_offset
    assert header.header_sha256 == hashlib.sha256(path.read_bytes()[: header.header_bytes]).hexdigest()


def test_sizes_are_those_of_the_arithmetic(made: ModuleType, tmp_path: Path) -> None:
    header = read(made.write_gguf(tmp_path / "m.gguf", tensors_of(made), META))
    assert [t.bytes for t in header.tensors] == [
        64 * 256 * 2,
        256 * 256 // 256 * 144,
        256 * 4,
        4 * 32 * 256 // 256 * 50,
        64 * 256 // 256 * 210,
    ]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("alignment", [8, 32, 4096])
def test_versions_byte_orders_and_alignments(
    made: ModuleType, tmp_path: Path, version: int, order: str, alignment: int
) -> None:
    metadata = {**META, "general.alignment": alignment}
    path = made.write_gguf(
        tmp_path / "m.gguf", tensors_of(made), metadata, version=version, order=order, alignment=alignment
    )
    header = read(path)
    assert [t.name for t in header.tensors] == [t.name for t in tensors_of(made)]
    assert (header.version, header.byte_order) == (version, {"<": "little", ">": "big"}[order])
    assert header.stray_bytes == 0


def test_a_scalar_and_an_empty_tensor_are_tensors(made: ModuleType, tmp_path: Path) -> None:
    tensors = [made.Made("scalar", (), "F32"), made.Made("none", (0,), "F32"), made.Made("pair", (2,), "F32")]
    header = read(made.write_gguf(tmp_path / "m.gguf", tensors, META))
    assert [(t.shape, t.bytes) for t in header.tensors] == [((), 4), ((0,), 0), ((2,), 8)]


def test_a_vocabulary_of_160_000_is_passed_over_quickly(made: ModuleType, tmp_path: Path) -> None:
    words = [f"w{i}" for i in range(160_000)]
    path = made.write_gguf(tmp_path / "m.gguf", tensors_of(made), {**META, "tokenizer.ggml.tokens": words})
    tracemalloc.start()
    begun = time.process_time()
    header = read(path)
    took_s = time.process_time() - begun
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert header.metadata["tokenizer.ggml.tokens"] == Skipped(count=160_000)
    assert took_s < 2.0  # 0.05 s here, without tracing
    assert peak_bytes < path.stat().st_size  # 2.3 MB of tokens are never held at once


def test_a_header_in_many_small_pieces_reads_the_same(made: ModuleType, tmp_path: Path) -> None:
    words = [f"w{i}" * (i % 9) for i in range(500)]
    metadata = {**META, "tokenizer.ggml.tokens": words, "tokenizer.chat_template": "x" * 999}
    path = made.write_gguf(tmp_path / "m.gguf", tensors_of(made), metadata)
    whole = read(path)
    with FileSource(path) as file:
        file.chunk_bytes = 1  # type: ignore[misc]
        assert read_gguf(file) == whole


def test_long_strings_are_passed_over_and_bytes_that_are_no_text_too(made: ModuleType, tmp_path: Path) -> None:
    metadata = {**META, "tokenizer.huggingface.json": "j" * (5 * 2**20), "after": 7}
    path = made.write_gguf(tmp_path / "m.gguf", tensors_of(made), metadata)
    header = read(path)
    assert header.metadata["tokenizer.huggingface.json"] == Skipped(count=5 * 2**20)
    assert header.metadata["after"] == 7


# --- bad files ------------------------------------------------------------------------------------------------------


def test_every_cut_of_a_file_is_an_error_that_says_truncated(made: ModuleType, tmp_path: Path) -> None:
    path = made.write_gguf(tmp_path / "m.gguf", tensors_of(made), {**META, "tokenizer.ggml.tokens": ["a", "bb"]})
    whole = path.read_bytes()
    header = read(path)
    for length in [*range(0, header.header_bytes + 40, 3), len(whole) - 64]:
        path.write_bytes(whole[:length])
        error = fails(path)
        assert "truncated" in error.what or "no GGUF" in error.what or "broken" in error.what, length


def test_missing_data_names_what_was_found_and_expected(made: ModuleType, tmp_path: Path) -> None:
    path = made.write_gguf(tmp_path / "m.gguf", tensors_of(made), META)
    size = path.stat().st_size
    os.truncate(path, size - 5000)
    error = fails(path, f"found {size - 5000:,} bytes", "output.weight")
    assert error.facts["size_bytes"] == size - 5000


@pytest.mark.parametrize(
    ("lie", "says"),
    [
        ({"num_tensors": 2**63}, "claims 9,223,372,036,854,775,808 tensors"),
        ({"num_tensors": 6}, "metadata"),
        ({"num_keys": 2**40}, "metadata keys"),
        ({"version": 1}, "version 1"),
        ({"version": 4}, "version 4"),
        ({"version": 0}, "version 0"),
    ],
)
def test_lying_counts_and_versions(made: ModuleType, tmp_path: Path, lie: dict[str, Any], says: str) -> None:
    path = made.write_gguf(tmp_path / "m.gguf", tensors_of(made), META, **lie)
    if lie == {"num_tensors": 6}:
        fails(path)  # the sixth tensor is read from the data, which holds zeros: no such tensor can exist
    else:
        fails(path, says)


def test_absurd_lengths_cost_nothing_even_in_a_huge_file(made: ModuleType, tmp_path: Path) -> None:
    huge = 400 * 10**9
    for key, value in (
        ("string", struct.pack("<IQ", 8, huge // 2)),
        ("numbers", struct.pack("<IIQ", 9, 4, huge // 8)),
        ("strings", struct.pack("<IIQ", 9, 8, huge // 10)),
        ("nested", struct.pack("<IIQ", 9, 9, huge // 20)),
    ):
        path = tmp_path / f"{key}.gguf"
        with path.open("wb") as file:
            file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", len(key)) + key.encode() + value)
            file.truncate(huge)
        tracemalloc.start()
        begun = time.process_time()
        fails(path, "absurdly long")
        assert time.process_time() - begun < 1.0
        assert tracemalloc.get_traced_memory()[1] < 2**21
        tracemalloc.stop()


def test_arrays_cannot_nest_without_end(made: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    nest = struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 60 + struct.pack("<IQ", 4, 1) + b"\0" * 4
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k" + nest + b"\0" * 64)
    fails(path, "nests arrays deeper than")


def patched(made: ModuleType, path: Path, old: bytes, new: bytes) -> Path:
    made.write_gguf(path, tensors_of(made), META)
    data = path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))
    return path


def test_names_that_are_no_text(made: ModuleType, tmp_path: Path) -> None:
    fails(patched(made, tmp_path / "t.gguf", b"attn_norm", b"attn_\xff\xfe\xfdm"), "tensor 2", "not UTF-8", r"\xff")
    fails(patched(made, tmp_path / "k.gguf", b"llama.block_count", b"llama.bl\xc3\x28k_count"), "not UTF-8")


def test_an_unknown_type_is_named_with_its_number(made: ModuleType, tmp_path: Path) -> None:
    known = struct.pack("<I", 12) + struct.pack("<Q", 64 * 256 * 2)
    new = tmp_path / "new.gguf"
    fails(patched(made, new, known, struct.pack("<I", 97) + known[4:]), "blk.0.attn_q.weight", "unknown type 97")
    old = tmp_path / "old.gguf"
    fails(patched(made, old, known, struct.pack("<I", 31) + known[4:]), "Q4_0_4_4", "removed", "IQ4_NL")


def test_a_row_that_is_no_whole_number_of_blocks(made: ModuleType, tmp_path: Path) -> None:
    shape = struct.pack("<IQQ", 2, 256, 256)
    path = patched(made, tmp_path / "m.gguf", shape, struct.pack("<IQQ", 2, 384, 256))
    fails(path, "blk.0.attn_q.weight", "384", "blocks of 256")


def test_more_dimensions_than_exist(made: ModuleType, tmp_path: Path) -> None:
    shape = struct.pack("<IQQ", 2, 256, 256)
    fails(patched(made, tmp_path / "m.gguf", shape, struct.pack("<IQQ", 5, 256, 256)), "claims 5 dimensions")


def test_sizes_that_overflow_64_bits_are_only_large_numbers_here(made: ModuleType, tmp_path: Path) -> None:
    shape = struct.pack("<IQQ", 2, 256, 256)
    path = patched(made, tmp_path / "m.gguf", shape, struct.pack("<IQQ", 2, 2**63, 2**63))
    fails(path)  # wrapped to 64 bits, this tensor would have no bytes


def test_a_tensor_or_key_that_is_there_twice(made: ModuleType, tmp_path: Path) -> None:
    tensors = [*tensors_of(made), made.Made("output.weight", (1, 256), "F32")]
    fails(made.write_gguf(tmp_path / "t.gguf", tensors, META), "output.weight is there twice")
    path = made.write_gguf(tmp_path / "k.gguf", tensors_of(made), {"key.a": 1, "key.b": 2})
    path.write_bytes(path.read_bytes().replace(b"key.b", b"key.a"))
    fails(path, "key.a is there twice")


def test_data_that_overlaps_or_is_not_aligned(made: ModuleType, tmp_path: Path) -> None:
    small = [made.Made("a", (64,), "F32"), made.Made("b", (64,), "F32")]
    fails(made.write_gguf(tmp_path / "o.gguf", small, META, offsets=[0, 224]), "a and b overlap", "224", "256")
    fails(made.write_gguf(tmp_path / "s.gguf", small, META, offsets=[0, 0]), "overlap")
    fails(made.write_gguf(tmp_path / "u.gguf", small, META, offsets=[0, 260]), "b", "not aligned", "multiple of 32")


def test_out_of_order_data_is_fine_and_gaps_are_counted(made: ModuleType, tmp_path: Path) -> None:
    small = [made.Made("a", (64,), "F32"), made.Made("b", (64,), "F32")]
    assert read(made.write_gguf(tmp_path / "r.gguf", small, META, offsets=[256, 0])).stray_bytes == 0
    assert read(made.write_gguf(tmp_path / "g.gguf", small, META, offsets=[0, 512])).stray_bytes == 256
    path = made.write_gguf(tmp_path / "e.gguf", small, META)
    with path.open("ab") as file:
        file.write(b"x" * 100)
    assert read(path).stray_bytes == 100


@pytest.mark.parametrize("alignment", [0, 3, 48, 2**21])
def test_alignments_that_are_no_power_of_two(made: ModuleType, tmp_path: Path, alignment: int) -> None:
    path = made.write_gguf(tmp_path / "m.gguf", tensors_of(made), {**META, "general.alignment": alignment})
    fails(path, "general.alignment", str(alignment))


def test_alignment_of_another_type_is_refused(made: ModuleType, tmp_path: Path) -> None:
    path = made.write_gguf(tmp_path / "m.gguf", tensors_of(made), {**META, "general.alignment": "32"})
    fails(path, "general.alignment")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "found 0 bytes"),
        (b"<!DOCTYPE html><html><body>log in</body></html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "Git LFS pointer"),
        (b"PK\x03\x04" + b"\0" * 60, "zip archive"),
        (b"\0" * 4096, "zeros"),
        (b"GGUF", "4 bytes"),
    ],
)
def test_what_is_no_gguf_says_what_it_looks_like(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    fails(path, "no GGUF file", says)


def test_names_cannot_steer_a_terminal(made: ModuleType, tmp_path: Path) -> None:
    evil = "blk.0.\x1b[31m\x07.weight"
    path = made.write_gguf(tmp_path / "m.gguf", [made.Made(evil, (4,), "F32"), made.Made(evil, (4,), "F32")], META)
    error = fails(path, "twice")
    assert "\x1b" not in error.why
    assert "\\x1b[31m" in error.why


def test_what_is_no_regular_file_never_blocks(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/null")):
        with pytest.raises(InputError, match="not a regular file"):
            FileSource(path)
    with pytest.raises(InputError, match="does not exist"):
        FileSource(tmp_path / "missing.gguf")


def test_a_file_that_shrinks_while_it_is_read(made: ModuleType, tmp_path: Path) -> None:
    path = made.write_gguf(tmp_path / "m.gguf", tensors_of(made), META)
    with FileSource(path) as file:
        os.truncate(path, 100)
        with pytest.raises(CheckpointError, match="became shorter") as caught:
            read_gguf(file)
    assert "found 100 bytes" in caught.value.why


def test_a_folder_that_denies_reading_is_a_machine_problem(tmp_path: Path) -> None:
    loop = tmp_path / "loop.gguf"
    loop.symlink_to(loop)
    with pytest.raises(FreeholdError) as caught:
        FileSource(loop)
    assert isinstance(caught.value, PrerequisiteError)
    assert "cannot read" in caught.value.what

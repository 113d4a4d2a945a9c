"""Every kernel compiles for every architecture with NVRTC alone; the disk cache returns what was made."""

from pathlib import Path

import pytest
import torch

from freehold_kernels.cuda.cache import CubinCache
from freehold_kernels.cuda.linear import linear_defines
from freehold_kernels.cuda.moe import MoeShape
from freehold_kernels.cuda.nvrtc import ARCHITECTURES, compile_cubin
from freehold_kernels.cuda.source import KERNELS, read_source, source_key
from freehold_kernels.errors import CompileError

K3_TP3 = MoeShape(blocks1=14, width=512, num_rows2=3584, top_k=16)
DEFINES = {
    "iq1_s_moe": [dict(K3_TP3.defines(tokens, torch.bfloat16, 132)) for tokens in (1, 8)],
    "q8_0_linear": [dict(linear_defines(3584, 7168, tokens, torch.bfloat16, 132)) for tokens in (1, 8)],
}
_ELF_MACHINE_CUDA = 190  # e_machine of the ELF header


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_compiles(kernel: str, arch: str) -> None:
    for defines in DEFINES[kernel]:
        cubin = compile_cubin(read_source(kernel), f"{kernel}.cu", arch, defines)
        assert cubin[:4] == b"\x7fELF"
        assert int.from_bytes(cubin[18:20], "little") == _ELF_MACHINE_CUDA
        assert f".text.{kernel}".encode() in cubin


def test_odd_shapes_compile() -> None:
    shape = MoeShape(blocks1=17, width=48, num_rows2=70, top_k=3)
    assert compile_cubin(read_source("iq1_s_moe"), "iq1_s_moe.cu", "sm_90a", dict(shape.defines(3, torch.float16, 20)))
    odd = dict(linear_defines(37, 160, 3, torch.float32, 20))
    assert compile_cubin(read_source("q8_0_linear"), "q8_0_linear.cu", "sm_90a", odd)


def test_a_source_error_names_its_line() -> None:
    with pytest.raises(CompileError) as caught:
        compile_cubin("int x = ;", "bad.cu", "sm_90a")
    assert "compiling bad.cu for sm_90a failed" in caught.value.what
    assert "bad.cu(1)" in caught.value.why


def test_the_key_changes_with_all_that_changes_the_code() -> None:
    base = source_key("q8_0_linear", "sm_90a", "13.0", {"ROWS": 16})
    others = [
        source_key("iq1_s_moe", "sm_90a", "13.0", {"ROWS": 16}),
        source_key("q8_0_linear", "sm_120a", "13.0", {"ROWS": 16}),
        source_key("q8_0_linear", "sm_90a", "13.1", {"ROWS": 16}),
        source_key("q8_0_linear", "sm_90a", "13.0", {"ROWS": 32}),
    ]
    assert len({base, *others}) == 5
    assert base == source_key("q8_0_linear", "sm_90a", "13.0", {"ROWS": 16})


def test_the_cache_makes_once_and_replaces_damage(tmp_path: Path) -> None:
    cache, calls = CubinCache(folder=tmp_path / "deep" / "er"), []

    def make() -> bytes:
        calls.append(1)
        return b"\x7fELF rest"

    assert cache.get("k", make) == cache.get("k", make) == b"\x7fELF rest"
    assert len(calls) == 1
    (tmp_path / "deep/er/k.cubin").write_bytes(b"")
    assert cache.get("k", make) == b"\x7fELF rest"
    assert len(calls) == 2
    assert [p.name for p in (tmp_path / "deep/er").iterdir()] == ["k.cubin"]


def test_a_cache_that_cannot_be_written_still_serves(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert CubinCache(folder=tmp_path / "file").get("k", lambda: b"\x7fELF") == b"\x7fELF"

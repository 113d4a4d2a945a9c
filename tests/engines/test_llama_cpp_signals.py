"""What lines of real logs mean."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.engines.llama_cpp.signals import last_words, read_line

LOGS = Path(__file__).resolve().parent.parent / "data" / "engines" / "llama_cpp"


def log(name: str) -> str:
    return (LOGS / f"{name}.log").read_text()


def events(name: str):
    return [event for event in map(read_line, log(name).splitlines()) if event is not None]


def test_a_healthy_start_of_the_package_tells_its_configuration():
    facts: dict[str, str] = {}
    for event in events("embedded_healthy"):
        facts |= event.facts
    assert facts["threads"] == "2"
    assert facts["cpu_features"] == "SSE3 SSSE3 AVX AVX2 F16C FMA BMI2 LLAMAFILE OPENMP REPACK"
    assert facts["sequences"] == "2"
    assert facts["context_tokens"] == "2048"
    assert facts["flash_attention"] == "enabled"
    # 2 sequences x 2,048 tokens x 30 layers x 2 x 3 heads x 64 wide x 2 bytes = 90 MiB
    assert int(facts["kv_cache_bytes.CPU"]) == 2 * 2048 * 30 * 2 * 3 * 64 * 2
    assert int(facts["compute_bytes.CPU"]) == round(16.64 * 2**20)
    assert facts["device.CPU"] == "AMD EPYC"
    assert not [e for e in events("embedded_healthy") if e.kind in ("fatal", "out_of_memory", "warning")]


def test_loading_is_counted_in_bytes():
    loading = [e for e in events("embedded_healthy") if e.kind == "loading"]
    assert [e.message for e in loading] == [
        "loading the model",
        "loading 92.1 MiB",
        "92.1 MiB of weights on CPU_Mapped",
        "warming up",
    ]
    assert loading[1].total_bytes == round(92.10 * 2**20)
    assert loading[2].done_bytes == round(92.10 * 2**20)


@pytest.mark.parametrize(("name", "port"), [("embedded_healthy", 18230), ("binary_healthy", 18231)])
def test_listening_is_seen(name, port):
    assert next(e.message for e in events(name) if e.kind == "listening") == f"listening on http://127.0.0.1:{port}"


WORDS = {
    "missing_file": "cannot open the model file: No such file or directory",
    "truncated_file": (
        "cannot load the model: tensor 'blk.2.ffn_up.weight' data is not within the file bounds, "
        "model is corrupted or incomplete"
    ),
    "out_of_memory": "asked for 429.2 GiB, which the machine does not have",
}


@pytest.mark.parametrize("runtime", ["embedded", "binary"])
@pytest.mark.parametrize("case", WORDS)
def test_the_first_last_word_names_the_cause(runtime, case):
    words = last_words(log(f"{runtime}_{case}"))
    assert 1 <= len(words) <= 5
    event = read_line(words[0])
    assert event is not None
    assert event.message == WORDS[case]
    assert event.kind == ("out_of_memory" if case == "out_of_memory" else "fatal")


@pytest.mark.parametrize(("runtime", "port"), [("embedded", 18230), ("binary", 18231)])
def test_a_taken_port_is_named(runtime, port):
    (word,) = last_words(log(f"{runtime}_port_taken"))
    assert read_line(word).message == f"cannot listen on 127.0.0.1 port {port}"


def test_a_file_of_another_kind_is_named():
    (word,) = last_words(log("embedded_no_gguf"))
    assert "no GGUF file: invalid magic characters" in read_line(word).message


def test_an_unknown_flag_is_named():
    assert last_words(log("binary_unknown_flag")) == ("error: invalid argument: --bogus",)


def test_a_build_for_another_processor_says_so_before_it_dies():
    assert last_words(log("binary_illegal_instruction")) == ("AMX is not ready to be used!",)


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.log")), ids=lambda p: p.stem)
def test_each_last_word_is_a_line_of_the_log(path):
    lines = [line.rstrip() for line in path.read_text().splitlines()]
    words = last_words(path.read_text())
    assert words
    assert all(word in lines for word in words)
    assert len(set(words)) == len(words)


def test_without_a_known_line_errors_come_first_then_the_end():
    assert last_words("0.00.001.000 I a\n0.00.002.000 E something new\n0.00.003.000 I b\n") == (
        "0.00.002.000 E something new",
    )
    assert last_words("\n".join("abcdefgh")) == tuple("defgh")
    assert last_words(" \n") == ()


# Printed by builds for accelerators, and by releases before log lines had a time; not seen in a log of ours.
OTHER_LINES = [
    ("ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory", "out_of_memory"),
    ("CUDA error: out of memory", "out_of_memory"),
    ("ggml_vulkan: Device memory allocation failed: ErrorOutOfDeviceMemory", "out_of_memory"),
    ("ggml-backend.cpp:1283: GGML_ASSERT(*cur_backend_id != -1) failed", "fatal"),
    ("load_tensors: offloaded 31/31 layers to GPU", "backend"),
    ("warning: no usable GPU found, --gpu-layers option will be ignored", "warning"),
    ("main: server is listening on http://127.0.0.1:8080 - starting the main loop", "listening"),
    ("graph_reserve: failed to allocate compute buffers", "out_of_memory"),
    ("llama_context: Flash Attention was auto, set to enabled", "settings"),
]


@pytest.mark.parametrize(("line", "kind"), OTHER_LINES)
def test_lines_of_other_builds_are_read_too(line, kind):
    event = read_line(line)
    assert event is not None
    assert event.kind == kind
    assert event.message
    assert "{" not in event.message


def test_every_pattern_is_needed_by_some_line():
    """A pattern that no known line matches first would be dead; each is proved by a capture or a line above."""
    lines = [line for path in LOGS.glob("*.log") for line in path.read_text().splitlines()]
    lines += [line for line, _ in OTHER_LINES]
    lines += [
        "terminate called after throwing an instance of 'std::runtime_error'",
        "2026-11-30T23:07:54.181Z freehold: error: llama.cpp has no option `bogus`: unknown ones are never ignored",
    ]
    kinds_seen = {(e.kind, e.message.split()[0]) for e in map(read_line, lines) if e is not None}
    table = tomllib.loads((files("freehold") / "data" / "engines" / "llama_cpp_log.toml").read_text())
    from freehold.engines.llama_cpp import signals

    first_match = set()
    for line in lines:
        prefix = signals._table().prefix.match(line)
        text = line[prefix.end() :]
        for number, pattern in enumerate(signals._table().patterns):
            if pattern.expression.search(text):
                first_match.add(number)
                break
    dead = [table["pattern"][n]["expression"] for n in range(len(table["pattern"])) if n not in first_match]
    assert dead == []
    assert kinds_seen


@given(st.text(max_size=200))
def test_any_line_is_survived(line):
    event = read_line(line)
    assert event is None or event.line == line.rstrip()
    last_words(line)

"""Which process a recipe becomes, and which version would start."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from freehold.engines.llama_cpp import serve
from freehold.engines.llama_cpp.engine import LlamaCppEngine
from freehold.engines.llama_cpp.signals import read_line
from freehold.engines.registry import dialect_named, engine, engine_names
from freehold.errors import EngineError, InputError
from freehold.plan.constants import parse_constants
from freehold.records.recipe import EndpointRequest, EngineRequest, LayoutRequest, Recipe
from freehold.world import LocalWorld

MODEL = Path("/models/some.gguf")


def recipe(runtime: str = "embedded", **more: object) -> Recipe:
    given = {"context": 2048, "sequences": 2, **more}
    return Recipe(name="some", model="some.gguf", engine=EngineRequest(name="llama.cpp", runtime=runtime), **given)


def command(given: Recipe):
    (one,) = LlamaCppEngine().commands(given, model_files=[MODEL], port=1234, alias="some")
    return one


def test_the_embedded_process_reads_back_exactly_what_was_meant():
    one = command(recipe(options={"threads": 2, "cache-ram": 64, "flash-attn": True}))
    assert one.argv[:4] == (sys.executable, "-P", "-m", "freehold.engines.llama_cpp.serve")
    config = serve.parse_arguments(one.argv[4:])
    assert (config.model, config.alias, config.host, config.port) == (str(MODEL), "some", "127.0.0.1", 1234)
    assert (config.context_tokens, config.sequences, config.api_key_file) == (2048, 2, None)
    assert dict(config.options) == {
        "cache-ram": 64,
        "verbosity": 4,
        "cors-origins": "localhost",
        "cache-idle-slots": False,
        "threads": 2,
        "flash-attn": "on",
    }
    assert one.env == {"GOMP_SPINCOUNT": "0"}


def test_the_binary_gets_its_own_flags_and_the_whole_context():
    one = command(recipe("llama-server", options={"threads": 2, "repack": False}))
    assert one.argv == (
        *("llama-server", "--model", str(MODEL), "--alias", "some", "--host", "127.0.0.1", "--port", "1234"),
        *("--ctx-size", "4096", "--parallel", "2", "--metrics", "--slots", "--no-webui"),
        *("--cache-ram", "0", "--threads", "2", "--no-repack"),
    )
    assert one.env == {"GOMP_SPINCOUNT": "0"}


@pytest.mark.parametrize("runtime", ["embedded", "llama-server"])
def test_a_key_is_named_by_its_file_only(runtime, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("hush-4711\n")
    one = command(recipe(runtime, endpoint=EndpointRequest(api_key_file=str(keys))))
    assert one.argv[one.argv.index("--api-key-file") + 1] == str(keys)
    assert "hush" not in " ".join((*one.argv, *one.env.values()))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"options": {"thread": 2}}, "no option `thread`"),
        ({"options": {"rpc": "x"}}, "embedded runtime has no option `rpc`"),
        ({"layout": LayoutRequest(tp_size=2)}, "takes no `layout`"),
        ({"speculation": {"method": "ngram"}}, "takes no `speculation`"),
    ],
)
def test_what_it_cannot_do_is_refused_before_anything_runs(more, words):
    with pytest.raises(InputError, match=words):
        LlamaCppEngine().check_options(recipe(**more))
    with pytest.raises(InputError, match=words):
        command(recipe(**more))


@pytest.mark.parametrize("files", [[], [Path("model.safetensors")]])
def test_only_gguf_files_are_served(files):
    with pytest.raises(InputError, match=r"llama\.cpp cannot serve"):
        LlamaCppEngine().commands(recipe(), model_files=files, port=1, alias="x")


def binary(tmp_path: Path, *lines: str, status: int = 0) -> str:
    path = tmp_path / "llama-server"
    path.write_text("#!/bin/sh\n" + "".join(f"echo '{line}' >&2\n" for line in lines) + f"exit {status}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("version: 0.2.0-dev (build 10605, commit 7e4c0a9)", "b10605-7e4c0a9"),
        ("version: 6789 (abcdef0)", "b6789-abcdef0"),
    ],
)
def test_a_binary_is_asked_for_its_version(tmp_path, line, version):
    runtime = binary(tmp_path, "ggml: some other line", line, "built with GNU 12.2.0 for Linux x86_64")
    assert LlamaCppEngine().installed_version(recipe(runtime), LocalWorld()) == version


def test_a_binary_that_is_not_there_is_not_installed(tmp_path):
    assert LlamaCppEngine().installed_version(recipe(str(tmp_path / "none")), LocalWorld()) is None


def test_a_binary_that_cannot_run_says_why(tmp_path):
    runtime = binary(tmp_path, "error while loading shared libraries: libllama.so", status=127)
    with pytest.raises(EngineError) as caught:
        LlamaCppEngine().installed_version(recipe(runtime), LocalWorld())
    assert "ended with 127: error while loading shared libraries" in caught.value.why


def test_libraries_beside_a_binary_are_found_only_if_it_does_not_find_them_itself(tmp_path):
    runtime = Path(binary(tmp_path, "version: 1 (a)"))
    assert "LD_LIBRARY_PATH" not in command(recipe(str(runtime))).env
    (tmp_path / "libllama.so.0").write_bytes(b"")
    name = "DYLD_LIBRARY_PATH" if sys.platform == "darwin" else "LD_LIBRARY_PATH"
    if sys.platform == "darwin":
        (tmp_path / "libllama.dylib").write_bytes(b"")
    assert command(recipe(str(runtime))).env[name] == str(tmp_path)
    runtime.write_bytes(runtime.read_bytes() + b"\0$ORIGIN\0")
    assert name not in command(recipe(str(runtime))).env
    assert name not in command(recipe("llama-server")).env


def test_the_constants_for_the_planner_have_a_source():
    terms = LlamaCppEngine().memory_terms()
    assert {"kv", "workspace", "runtime", "repack", "prompt_cache", "headroom"} <= set(terms)
    assert terms["source"]
    assert str(terms["checked"]) == "2026-11-30"
    assert parse_constants(terms, "llama.cpp").workspace.ubatch_tokens == 512


def test_engines_are_found_by_name():
    assert engine_names() == ("llama.cpp",)
    assert engine("llama.cpp").name == "llama.cpp"
    assert engine("llama.cpp").dialect.name == "llama.cpp"
    with pytest.raises(InputError) as caught:
        engine("llamacpp")
    assert "`engine.name: llama.cpp`" in caught.value.fix


@pytest.mark.parametrize("name", ["llama.cpp", "vllm", "openai"])
def test_dialects_are_found_by_name(name):
    assert dialect_named(name).name == name


def test_an_unknown_dialect_is_refused():
    with pytest.raises(InputError, match="no dialect is called 'tgi'"):
        dialect_named("tgi")


def test_arguments_of_the_embedded_process_are_checked():
    good = ["--model", "m", "--alias", "a", "--port", "1", "--context-tokens", "8"]
    assert serve.parse_arguments(good).sequences == 1
    with pytest.raises(InputError, match="8 tokens for 0 sequences"):
        serve.parse_arguments([*good, "--sequences", "0"])
    with pytest.raises(InputError, match="no option `bogus`"):
        serve.parse_arguments([*good, "--set", "bogus=1"])


def test_keys_are_read_as_the_binary_reads_them(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# remark\n; remark\n\n  first \nsecond\n")
    assert serve.read_keys(str(path)) == ["first", "second"]
    path.write_text("# remark\n")
    with pytest.raises(InputError, match="holds no key"):
        serve.read_keys(str(path))
    with pytest.raises(InputError, match="cannot read"):
        serve.read_keys(str(tmp_path / "none"))


def test_a_pinned_version_stays_in_the_recipe():
    """The engine says what is there; comparing it with what the recipe insists on is the launch's part."""
    pinned = replace(recipe(), engine=EngineRequest(name="llama.cpp", version="0.0.0"))
    version = LlamaCppEngine().installed_version(pinned, LocalWorld())
    assert version != "0.0.0"


def test_the_embedded_process_notices_that_its_owner_is_gone(capfd):
    ended = threading.Event()
    serve._watch_owner(os.getppid() + 1, ended)
    assert ended.is_set()
    assert "is gone" in capfd.readouterr().err


def test_the_embedded_process_stays_while_its_owner_is_there():
    ended = threading.Event()
    watcher = threading.Thread(target=serve._watch_owner, args=(os.getppid(), ended), daemon=True)
    watcher.start()
    watcher.join(0.7)
    assert not ended.is_set()
    ended.set()
    watcher.join(2)
    assert not watcher.is_alive()


def test_a_missing_package_is_told_in_one_line(tmp_path):
    """Without the package the process ends with one line that says what to install."""
    blocker = "import sys; sys.modules['xllamacpp'] = None; from freehold.engines.llama_cpp import serve; "
    arguments = ["x", "--model", "m", "--alias", "a", "--port", "1", "--context-tokens", "8"]
    done = subprocess.run(
        [sys.executable, "-c", f"{blocker} sys.argv = {arguments!r}; sys.exit(serve.main())"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert "the embedded llama.cpp cannot be imported" in line
    assert "install the package `xllamacpp`" in line
    assert read_line(line).kind == "fatal"

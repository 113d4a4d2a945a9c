"""``freehold up`` before anything ran: misuse leaves no folder, a password reaches no file, paths may be any bytes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from freehold.cli.journeys import Request, default_cache, new_folder, open_scene, read_key, run_and_show
from freehold.cli.main import main
from freehold.errors import InputError, PrerequisiteError


@pytest.mark.parametrize("url", ["http://user:secret@host", "ftp://host", "", "http://host/?key=secret"])
def test_an_address_that_is_none_leaves_no_folder(url: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        run_and_show(Request(attach=url, run_dir=tmp_path / "run"), as_json=False)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_wrote_nothing_leaves_nothing(tmp_path: Path) -> None:
    request = Request(run_dir=tmp_path / "run")
    for _ in range(2):  # the second finds the place as free as the first
        with pytest.raises(InputError, match="engine"), open_scene(request, new_folder(request, "x")):
            raise InputError("no such engine", why="y", fix="f")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_wrote_something_keeps_it(tmp_path: Path) -> None:
    request = Request(run_dir=tmp_path / "run")
    with open_scene(request, new_folder(request, "x")) as scene:
        (scene.folder.logs / "engine-0.log").write_text("line")
    assert (tmp_path / "run" / "logs" / "engine-0.log").read_text() == "line"


def test_a_run_folder_may_have_a_name_that_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = os.fsdecode(os.fsencode(tmp_path) + b"/run-\xff")
    assert main(["up", "--attach", "http://127.0.0.1:1", "--run-dir", run]) == 3
    assert "connection refused" in capsys.readouterr().err.lower()
    assert (Path(run) / "journey.json").is_file()
    assert main(["report", run]) == 0


def test_a_user_without_a_home_is_told_to_name_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(PrerequisiteError, match="no place for downloaded models") as caught:
        default_cache()
    assert "--cache" in caught.value.fix


@pytest.mark.parametrize("command", ["report", "status", "logs", "stop", "verify", "bench", "launch", "preflight"])
def test_a_path_longer_than_the_system_allows_is_no_bug(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "x" * 5000]) in (2, 3)
    assert "File name too long" in capsys.readouterr().err


@pytest.mark.parametrize("target", ["x" * 5000, "~nobody-of-this-name/model.gguf"])
def test_a_model_that_cannot_be_looked_for_is_misuse(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", target]) == 2
    assert "cannot be looked for" in capsys.readouterr().err


def test_a_key_file_without_an_end_is_refused() -> None:
    with pytest.raises(PrerequisiteError, match="cannot read the API key") as caught:
        read_key(Path("/dev/zero"))
    assert caught.value.why == "it is longer than 1,048,576 bytes"

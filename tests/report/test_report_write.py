from __future__ import annotations

import errno
import json
import os
import shutil
import socket
from pathlib import Path

import pytest
from sample_run import Shape, make_run

from freehold.cli.main import main
from freehold.errors import InputError, PrerequisiteError
from freehold.records.base import sha256_hex
from freehold.records.folder import RunFolder
from freehold.report.load import load_run
from freehold.report.write import write_report

FAST = Shape(has_samples=False, is_attached=True, verification="self")
"""A run without a picture: rendering it starts no drawing."""


def manifest(folder: RunFolder) -> dict[str, dict[str, object]]:
    return json.loads((folder.path / "manifest.json").read_bytes())["files"]


def test_both_files_are_written_and_entered(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", FAST)
    written = write_report(folder)
    assert written.html.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert written.markdown.read_text(encoding="utf-8").startswith("# smollm2\n")
    for path in (written.html, written.markdown):
        entry = {"sha256": sha256_hex(path.read_bytes()), "bytes": path.stat().st_size}
        assert written.entries[path.name] == manifest(folder)[path.name] == entry
    assert folder.check_manifest() == []


def test_the_same_records_give_the_same_files_anywhere(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", FAST)
    first = write_report(folder)
    again = write_report(folder)
    shutil.copytree(folder.path, tmp_path / "elsewhere" / "other-name")
    moved = write_report(RunFolder.open(tmp_path / "elsewhere" / "other-name"))
    assert first.entries == again.entries == moved.entries


def test_rendering_does_not_whitewash_a_changed_file(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", FAST)
    (folder.samples / "note.txt").write_text("as written")
    folder.write_manifest()
    (folder.samples / "note.txt").write_text("as edited")
    for _ in range(2):
        write_report(folder)
        assert load_run(folder).file_problems == ("samples/note.txt was changed after it was written",)


@pytest.mark.parametrize("content", [None, b"{", b"[]", b'{"files": 3}'])
def test_a_manifest_that_is_gone_or_broken_is_said_and_not_made_up(tmp_path: Path, content: bytes | None) -> None:
    folder = make_run(tmp_path / "run", FAST)
    path = folder.path / "manifest.json"
    path.unlink() if content is None else path.write_bytes(content)
    first = write_report(folder)
    assert "files changed" in first.markdown.read_text()
    assert (path.read_bytes() if path.exists() else None) == content
    assert write_report(folder).entries == first.entries


def test_a_broken_record_leaves_the_old_report_alone(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", FAST)
    before = write_report(folder).html.read_bytes()
    (folder.path / "bench.json").write_text("{}")
    with pytest.raises(InputError, match=r"bench\.json"):
        write_report(folder)
    assert (folder.path / "report.html").read_bytes() == before


def test_a_full_disk_leaves_the_old_report_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_run(tmp_path / "run", FAST)
    before = write_report(folder).html.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PrerequisiteError, match=r"report\.html"):
        write_report(folder)
    assert (folder.path / "report.html").read_bytes() == before
    assert [p.name for p in folder.path.iterdir() if p.name.startswith(".")] == []


def test_a_lone_surrogate_in_a_servers_words_is_no_error(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    path = folder.samples / "bench.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines[4] = lines[4].replace(b'"error": null', b'"error": "broken \\ud83d text"')
    path.write_bytes(b"\n".join(lines))
    assert "broken ? text" in write_report(folder).html.read_text(encoding="utf-8")


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_command_renders_and_shows_the_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(tmp_path / "run", FAST)
    assert main(["report", str(folder.path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("! self-consistency only\n")
    assert "report.html" in out
    assert (folder.path / "report.html").is_file()


def test_the_command_gives_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(tmp_path / "run", FAST)
    assert main(["report", str(folder.path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "freehold.manifest/1"
    assert told["files"] == {name: manifest(folder)[name] for name in ("report.html", "report.md")}


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        (lambda path: shutil.rmtree(path), 2, "is no run folder"),
        (lambda path: (path / "plan.json").write_text("[]"), 2, "plan.json"),
        (lambda path: (path / "recipe.yaml").write_bytes(b"\xff\xfe"), 2, "recipe.yaml"),
        (lambda path: (path / "samples" / "bench.jsonl").write_text("x\n"), 2, "bench.jsonl, line 1"),
    ],
)
def test_bad_input_gets_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: object, code: int, words: str
) -> None:
    folder = make_run(tmp_path / "run")
    spoil(folder.path)  # type: ignore[operator]
    assert main(["report", str(folder.path)]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err.replace("\n       ", " ").replace("\n", "")
    assert "Traceback" not in captured.err
    assert not (folder.path / "report.html").exists()


def test_two_at_once_are_one_too_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(tmp_path / "run", FAST)
    with folder.lock():
        assert main(["report", str(folder.path)]) == 3
    assert "in use by another freehold" in " ".join(capsys.readouterr().err.split())


def test_rendering_touches_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("rendering opened a socket")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    write_report(make_run(tmp_path / "run"))

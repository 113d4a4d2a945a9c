"""Which command lines and start times mean the same process."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.errors import InputError
from freehold.launch.process import argv_sha256, is_same_command, next_record_name, read_records, same_start
from freehold.launch.status import find_runs
from freehold.records.folder import RunFolder

ARGUMENT = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=8)
ARGV = st.lists(ARGUMENT, min_size=1, max_size=5)


def test_the_hash_can_be_made_by_hand():
    assert argv_sha256(["a", "b c"]) == hashlib.sha256(b"a\0b c\0").hexdigest()


@given(ARGV, ARGV)
def test_the_hash_tells_argument_vectors_apart(left, right):
    assert (argv_sha256(left) == argv_sha256(right)) == (left == right)


@given(ARGV)
def test_a_command_is_itself(argv):
    assert is_same_command(argv, argv)


@given(st.lists(ARGUMENT, max_size=3), ARGUMENT, st.lists(ARGUMENT, min_size=1, max_size=4))
def test_an_interpreter_in_front_or_another_program_name_changes_nothing(front, program, arguments):
    assert is_same_command(["script", *arguments], [*front, program, *arguments])


@given(ARGUMENT, st.lists(ARGUMENT, min_size=1, max_size=4), ARGUMENT)
def test_one_more_argument_is_another_command(program, arguments, more):
    observed = [program, *arguments, more]
    assert is_same_command([program, *arguments], observed) == (observed[-len(arguments) :] == arguments)


@pytest.mark.parametrize("observed", [["b"], ["a", "a"], ["python", "a"], []])
def test_without_arguments_only_the_whole_line_counts(observed):
    assert not is_same_command(["a"], observed)


def test_the_arguments_alone_are_no_command():
    assert not is_same_command(["serve", "--port", "1"], ["--port", "1"])


@pytest.mark.parametrize(("other", "is_same"), [(1000.0, True), (1001.9, True), (998.1, True), (1002.1, False)])
def test_start_times_may_be_read_one_second_off(other, is_same):
    assert same_start(1000.0, other) is is_same


def test_records_are_numbered_and_read_in_order(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    assert next_record_name(folder) == "process-0.json"
    for number in (0, 9, 10):
        (folder.path / f"process-{number}.json").write_text("{}")
    assert next_record_name(folder) == "process-11.json"
    for number in (0, 9, 10):
        (folder.path / f"process-{number}.json").unlink()
    (folder.path / "process-notes.json").write_text("{}")
    assert read_records(folder) == ()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_record_that_is_no_file_is_named_and_not_waited_for(tmp_path, make):
    folder = RunFolder.create(tmp_path / "run")
    make(folder.path / "process-0.json")
    with pytest.raises(InputError, match=r"process-0.json is no file"):
        read_records(folder)


def test_a_run_without_its_manifest_is_still_found(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "note.txt").write_text("x")
    assert find_runs(tmp_path) == ()
    (folder.path / "process-0.json").write_text("{}")
    assert [run.path for run in find_runs(tmp_path)] == [folder.path]
    assert [run.path for run in find_runs(folder.path)] == [folder.path]

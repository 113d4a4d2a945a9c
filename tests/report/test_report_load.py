from __future__ import annotations

import json
from pathlib import Path

import pytest
from sample_run import Shape, make_run

from freehold.errors import InputError
from freehold.records.base import sha256_hex
from freehold.records.folder import RunFolder
from freehold.records.verdict import Outcome
from freehold.report.load import Stage, load_run
from freehold.report.samples import read_samples


def test_a_whole_run_is_read_whole(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "run"))
    assert all(getattr(run, stage.value) is not None for stage in Stage)
    assert run.recipe is not None
    assert run.recipe.name == "sample-smollm2"
    assert run.recipe_text is not None
    assert "SAMPLE DATA" in run.recipe_text
    assert len(run.samples) == 2 * (15 + 2)  # two classes, fifteen counted, two dropped
    assert sum(sample.is_counted for sample in run.samples) == 2 * 15
    assert run.file_problems == ()
    assert not any(run.why_missing(stage) for stage in Stage)


def test_hashes_are_those_of_the_files(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "run"))
    for name in ("recipe.yaml", "plan.json", "bench.json", "samples/bench.jsonl"):
        assert run.sha256_by_file[name] == sha256_hex((tmp_path / "run" / name).read_bytes())


@pytest.mark.parametrize(
    ("shape", "stage", "reason"),
    [
        (Shape(fits=False), Stage.DEPLOYMENT, "the plan does not fit"),
        (Shape(fits=False), Stage.PREFLIGHT, "the plan does not fit"),
        (Shape(preflight=Outcome.FAIL), Stage.DEPLOYMENT, "a preflight check said no"),
        (Shape(preflight=Outcome.FAIL), Stage.BENCH, "a preflight check said no"),
        (Shape(has_server=False), Stage.DEPLOYMENT, "the engine ended with status 1"),
        (Shape(has_server=False), Stage.VERIFICATION, "no server was running"),
        (Shape(has_server=False, has_journey=False), Stage.DEPLOYMENT, "holds no deployment.json"),
        (Shape(verification="failed", bench="none"), Stage.BENCH, "the verification failed"),
        (Shape(verification="inconclusive", bench="none"), Stage.BENCH, "the verification was inconclusive"),
        (Shape(is_attached=True, verification="self"), Stage.PLAN, "attached to a server"),
        (Shape(is_attached=True, verification="self"), Stage.NODE, "attached to a server"),
        (Shape(bench="none", has_journey=False), Stage.BENCH, "holds no bench.json"),
    ],
)
def test_a_stage_that_did_not_run_says_why(tmp_path: Path, shape: Shape, stage: Stage, reason: str) -> None:
    run = load_run(make_run(tmp_path / "run", shape))
    assert getattr(run, stage.value) is None
    assert reason in run.why_missing(stage)


def test_an_empty_folder_with_a_manifest_is_a_run_in_which_nothing_ran(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.write_manifest()
    run = load_run(folder)
    assert all(getattr(run, stage.value) is None for stage in Stage)
    assert all(run.why_missing(stage) for stage in Stage)


@pytest.mark.parametrize("name", ["plan.json", "bench.json", "verification.json"])
def test_a_broken_record_is_named(tmp_path: Path, name: str) -> None:
    folder = make_run(tmp_path / "run")
    path = folder.path / name
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match=name):
        load_run(folder)


def test_a_broken_recipe_is_named(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    (folder.path / "recipe.yaml").write_text("freehold: 1\nnme: x\n")
    with pytest.raises(InputError, match=r"recipe\.yaml"):
        load_run(folder)


def test_changed_files_are_reported_but_growing_logs_and_the_report_itself_are_not(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    (folder.path / "report.html").write_text("old")
    folder.write_manifest()
    (folder.path / "report.html").write_text("edited by hand")
    with (folder.logs / "server.log").open("a") as log:
        log.write("one more line\n")
    assert load_run(folder).file_problems == ()
    path = folder.path / "node.json"
    path.write_bytes(path.read_bytes().replace(b"Sample Processor", b"Faster Processor"))
    assert load_run(folder).file_problems == ("node.json was changed after it was written",)


def write_lines(path: Path, *lines: str) -> dict[str, str]:
    path.write_text("".join(lines))
    return {path.name: sha256_hex(path.read_bytes())}


def row(**fields: object) -> str:
    return json.dumps({"prompt_class": "code", "concurrency": 1, "ttft_s": 0.2, **fields}) + "\n"


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    names = write_lines(tmp_path / "s.jsonl", row(index=0), row(index=1), row(index=2)[:20])
    assert [s.index for s in read_samples(tmp_path, names).rows] == [0, 1]


def test_a_request_written_twice_counts_once(tmp_path: Path) -> None:
    names = write_lines(tmp_path / "s.jsonl", row(index=0), row(index=0), row(index=1))
    assert len(read_samples(tmp_path, names).rows) == 2


@pytest.mark.parametrize("line", ["{}\n", "[1]\n", "\n", '{"prompt_class": 1, "concurrency": 1}\n', "{\n"])
def test_a_line_that_is_no_sample_is_named(tmp_path: Path, line: str) -> None:
    names = write_lines(tmp_path / "s.jsonl", row(index=0), line)
    with pytest.raises(InputError, match="line 2"):
        read_samples(tmp_path, names)


def test_values_that_are_no_numbers_stay_missing(tmp_path: Path) -> None:
    names = write_lines(
        tmp_path / "s.jsonl",
        row(index=0, ttft_s=None, tpot_s="0.1", e2e_s=True, decode_tok_per_s=float("nan")),
        row(index=1, ttft_s=10**400, output_tokens=1.5),
    )
    first, second = read_samples(tmp_path, names).rows
    assert (first.ttft_s, first.tpot_s, first.e2e_s, first.decode_tok_per_s) == (None, None, None, None)
    assert (second.ttft_s, second.output_tokens) == (None, None)


def test_absent_samples_have_a_reason(tmp_path: Path) -> None:
    assert read_samples(tmp_path, {"s.jsonl": "0" * 64}).missing == "samples/s.jsonl is not in the run folder"
    assert read_samples(tmp_path, {}).missing == "the benchmark kept no raw samples"


def test_a_samples_name_cannot_leave_its_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.jsonl").write_text(row(index=0))
    (tmp_path / "samples").mkdir()
    assert read_samples(tmp_path / "samples", {"../secret.jsonl": "0" * 64}).rows == ()

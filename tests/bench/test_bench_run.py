"""The whole stage against a server of known timing: a real process, real sockets, no tight limits on time."""

from __future__ import annotations

import _thread
import json
import random
import socket
import threading
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from freehold.bench.run import bench, recompute
from freehold.bench.samples import read_samples
from freehold.client.api import Endpoint
from freehold.errors import EngineError, InputError, PrerequisiteError, VerificationError
from freehold.evidence import Evidence
from freehold.progress import Progress
from freehold.records.base import decode, encode, sha256_hex
from freehold.records.bench import BenchArm, BenchResult
from freehold.records.recipe import BenchRequest
from freehold.records.verdict import Outcome
from freehold.records.verification import Verification
from freehold.world import LocalWorld

Known = Callable[[str], Endpoint]
WORLD = LocalWorld()
CEILING = Evidence.assumed(1e6, "tok/s", source="test")
SMALL = BenchRequest(requests=5, warmup=1, output_tokens=20, prompt_classes=("code", "prose"), concurrency=(1,))


@dataclass
class Run:
    """How a test calls the stage."""

    tmp_path: Path
    dialect: Callable[..., Any]
    events: list[Progress] = field(default_factory=list)

    def __call__(
        self,
        endpoint: Endpoint,
        request: BenchRequest = SMALL,
        *,
        script: Mapping[str, object] | None = None,
        has_counters: bool = True,
        **more: Any,
    ) -> BenchResult:
        options: dict[str, Any] = {
            "made_from": {"deployment.json": "d" * 64},
            "ceiling": CEILING,
            "verification": None,
            "unverified": True,
            "samples_path": self.tmp_path / "bench.jsonl",
            "listener": self.events.append,
            "command": "freehold bench",
            "seed": 7,
            "node": {"processor": "test"},
            "load": lambda: 0.5,
            "timeout_s": 20.0,
        }
        dialect = self.dialect(script or {}, has_counters)
        return bench(endpoint, dialect, WORLD, request, **(options | more))


@pytest.fixture
def run(tmp_path: Path, known_dialect: Callable[..., Any]) -> Run:
    return Run(tmp_path, known_dialect)


def verification(passed: bool = True, deployment: str = "d" * 64) -> Verification:
    return Verification(
        made_from={"deployment.json": deployment},
        checkpoint_sha256=None,
        scope="self-consistency only",
        verdicts=(),
        outcome=Outcome.PASS if passed else Outcome.FAIL,
        passed=passed,
    )


def number(evidence: Evidence) -> float:
    assert evidence.number is not None
    return evidence.number


def complaints(arm: BenchArm) -> tuple[str, ...]:
    """Flags, without those that a busy machine adds: a late client, a server that had to wait for its processor."""
    machine = ("the client could not keep up", "arrivals were stamped after", ": stalled ")
    return tuple(flag for flag in arm.flags if not any(words in flag for words in machine))


# -------------------------------------------------------------------------------------------------- the whole run


def test_a_whole_run_has_every_arm_and_every_sample(known: Known, run: Run) -> None:
    result = run(known("plain"))
    assert [(a.prompt_class, a.requests, a.warmup, a.failed) for a in result.arms] == [
        ("code", 5, 1, 0),
        ("prose", 5, 1, 0),
    ]
    for arm in result.arms:
        assert arm.output_tokens.value == 20
        assert arm.prompt_tokens.value == 32
        # The server may be late, never early: 10 ms to the first token, 1 ms from token to token.
        assert number(arm.metrics["ttft_s"].mean) >= 0.010
        assert number(arm.metrics["e2e_s"].mean) >= 0.029
        assert number(arm.metrics["decode_tok_per_s"].mean) > 0
        assert arm.metrics["ttft_s"].mean.n == 5
        assert arm.metrics["ttft_s"].mean.interval is not None
        assert arm.metrics["ttft_s"].p99.value is None
        assert arm.counters.client_tokens.value == arm.counters.server_tokens.value == 100
        assert arm.counters.explanation.endswith("The engine's own counter agrees.")
    assert not result.verified
    assert not result.interrupted
    assert result.node["load before"] == "0.50"
    assert result.node["asked by"] == "completion"
    path = run.tmp_path / "bench.jsonl"
    assert result.samples == {"bench.jsonl": sha256_hex(path.read_bytes())}
    assert len(read_samples(path)) == 12
    assert decode(BenchResult, encode(result)) == result


def test_the_figures_can_be_made_again_from_disk(known: Known, run: Run) -> None:
    result = run(known("plain"), replace(SMALL, concurrency=(1, 2)))
    again = recompute(
        result,
        run.tmp_path / "bench.jsonl",
        ceiling=CEILING,
        request=replace(SMALL, concurrency=(1, 2)),
    )
    assert again == result


def test_progress_counts_to_the_end(known: Known, run: Run) -> None:
    run(known("plain"))
    counted = [(event.done, event.total) for event in run.events if event.done is not None]
    assert counted == [(i, 12) for i in range(13)]
    assert run.events[-1].is_final
    assert run.events[-1].message.startswith("measured 10 requests; one stream: code ")
    assert "warm-up" in run.events[1].message


def test_no_prompt_begins_like_another_and_a_seed_repeats_them(known: Known, run: Run) -> None:
    def sent(seed: int, name: str) -> list[tuple[str, str]]:
        run(known("plain"), replace(SMALL, requests=3), seed=seed, samples_path=run.tmp_path / name, has_counters=False)
        samples = sorted(read_samples(run.tmp_path / name), key=lambda s: s.key.index)
        return [(s.key.prompt, s.key.nonce) for s in samples]

    first, second, other = sent(1, "a"), sent(1, "b"), sent(2, "c")
    assert first == second
    assert first != other
    assert len({nonce[:6] for _, nonce in first}) == len(first)


def test_classes_take_turns(known: Known, run: Run) -> None:
    run(known("plain"), replace(SMALL, requests=4, warmup=0), has_counters=False)
    samples = sorted(read_samples(run.tmp_path / "bench.jsonl"), key=lambda s: s.sent_at_s)
    assert [s.key.prompt_class[0] for s in samples] == list("cppccppc")


def test_several_streams_are_an_arm_apart(known: Known, run: Run) -> None:
    request = replace(SMALL, requests=3, prompt_classes=("code",), concurrency=(1, 4))
    result = run(known("plain"), request, script={"step_s": 0.005})
    single, several = result.arms
    assert (several.concurrency, several.requests, several.warmup) == (4, 4, 4)
    # Four streams of the same pace deliver more together than one alone.
    assert number(several.output_tok_per_s) > number(single.output_tok_per_s)
    assert number(several.metrics["e2e_s"].mean) >= 0.01 + 19 * 0.005


def test_an_older_samples_file_is_kept(known: Known, run: Run) -> None:
    request = replace(SMALL, requests=1, warmup=0, prompt_classes=("code",))
    first = run(known("plain"), request)
    second = run(known("plain"), request)
    assert list(first.samples) == ["bench.jsonl"]
    assert list(second.samples) == ["bench-2.jsonl"]
    assert first.samples["bench.jsonl"] == sha256_hex((run.tmp_path / "bench.jsonl").read_bytes())


def test_without_counters_the_third_ledger_is_not_measured(known: Known, run: Run) -> None:
    result = run(known("plain"), replace(SMALL, prompt_classes=("code",)), has_counters=False)
    assert result.arms[0].counters.server_tokens.reason == "the engine has none, or did not answer"


def test_traffic_of_others_is_found(known: Known, run: Run) -> None:
    endpoint = known("plain")

    def foreign(event: Progress) -> None:
        if event.done == 3:
            body = json.dumps({"model": "plain", "max_tokens": 30}).encode()
            urllib.request.urlopen(f"{endpoint.base_url}/completions", data=body, timeout=10).read()

    result = run(endpoint, replace(SMALL, prompt_classes=("code",)), listener=foreign)
    assert result.arms[0].counters.server_tokens.value == 130
    assert "it also finished 1 request of other clients" in result.arms[0].counters.explanation


def test_a_speed_above_the_ceiling_is_flagged(known: Known, run: Run) -> None:
    result = run(
        known("plain"), replace(SMALL, prompt_classes=("code",)), ceiling=Evidence.assumed(1.0, "tok/s", source="t")
    )
    assert any("faster than its ceiling" in flag for flag in result.arms[0].flags)


# --------------------------------------------------------------------------------------------- difficult streams


def one_arm(known: Known, run: Run, script: str, *, tokens: int = 100, **more: object) -> BenchArm:
    request = BenchRequest(requests=8, warmup=0, output_tokens=tokens, prompt_classes=("code",), concurrency=(8,))
    return run(known(script), request, script=more).arms[0]


def test_speculation_counts_tokens_not_chunks(known: Known, run: Run) -> None:
    arm = one_arm(known, run, "speculation")
    assert arm.output_tokens.value == 100
    # 33 gaps between chunks, 99 tokens after the first.
    assert number(arm.metrics["tpot_s"].mean) * 99 == pytest.approx(number(arm.metrics["itl_s"].mean) * 33)
    assert complaints(arm) == ()


def test_tokens_that_came_with_the_first_chunk_are_left_out_of_tpot(known: Known, run: Run) -> None:
    arm = one_arm(known, run, "batched")
    assert arm.output_tokens.value == 100
    assert "token ids" in arm.output_tokens.source
    # 34 chunks of three, the last of one: 97 tokens come in 33 gaps.
    assert number(arm.metrics["tpot_s"].mean) * 97 == pytest.approx(number(arm.metrics["itl_s"].mean) * 33)
    assert complaints(arm) == ()


def test_reasoning_counts_and_the_answer_has_its_own_time(known: Known, run: Run) -> None:
    # The script speaks of reasoning on the chat route alone; the completion route is taken away.
    endpoint = known("reasoning")
    arm = run(
        replace(endpoint, base_url=f"{endpoint.root_url}/chat-only/v1"),
        BenchRequest(requests=3, warmup=0, output_tokens=100, prompt_classes=("code",)),
    ).arms[0]
    assert arm.output_tokens.value == 100
    assert number(arm.metrics["first_answer_s"].mean) >= 0.01 + 40 * 0.001
    assert complaints(arm) == ()


def test_a_false_usage_is_named_and_not_used(known: Known, run: Run) -> None:
    arm = one_arm(known, run, "usage_plus_10")
    assert arm.output_tokens.value == 100
    assert arm.counters.client_tokens.value == 800
    assert arm.counters.usage_tokens.value == 880
    assert arm.counters.server_tokens.value == 800
    assert complaints(arm) == (
        "all 8 requests, such as number 1: `usage` states 110 tokens (+10 %), but 100 was the limit",
    )
    assert "880 tokens, 80 (10.0 %) more than what the streams delivered" in arm.counters.explanation


@pytest.mark.parametrize("evidence", ["ids", "logprobs"])
def test_a_false_usage_below_the_limit_is_found_where_the_stream_lists_tokens(
    known: Known, run: Run, evidence: str
) -> None:
    arm = one_arm(known, run, "stops_at_60", usage_factor=1.1, evidence=evidence)
    assert arm.output_tokens.value == 60
    assert any("states 66 tokens (+10 %), but the stream lists 60" in flag for flag in arm.flags)


def test_a_stall_is_named_with_size_and_place(known: Known, run: Run) -> None:
    arm = one_arm(known, run, "stall", stall_s=1.0)
    assert arm.flags[0].startswith("all 8 requests, such as number ")
    assert ": stalled " in arm.flags[0]
    assert arm.flags[0].endswith(" after token 50")
    assert complaints(arm) == ()
    # It stays in the figures.
    assert number(arm.metrics["e2e_s"].mean) >= 0.01 + 99 * 0.001 + 1.0


def test_a_role_is_no_first_token(known: Known, run: Run) -> None:
    endpoint = known("role_early")
    arm = run(
        replace(endpoint, base_url=f"{endpoint.root_url}/chat-only/v1"),
        BenchRequest(requests=3, warmup=0, output_tokens=20, prompt_classes=("code",)),
        script={"role_s": 0.005, "ttft_s": 0.05},
    ).arms[0]
    assert number(arm.metrics["ttft_s"].mean) >= 0.05
    assert complaints(arm) == ()


def test_an_answer_that_stops_early_counts_what_it_delivered(known: Known, run: Run) -> None:
    arm = one_arm(known, run, "stops_at_60")
    assert arm.output_tokens.value == 60
    assert arm.counters.client_tokens.value == 480
    assert complaints(arm) == ("all 8 requests, such as number 1: ended after 60 of 100 tokens asked for",)


def test_a_stream_that_is_cut_is_a_failure_and_not_a_fast_answer(known: Known, run: Run) -> None:
    arm = one_arm(known, run, "cut_one_in_8")
    assert (arm.requests, arm.failed) == (7, 1)
    assert arm.output_tokens.value == 100
    first, second = complaints(arm)
    assert "failed: the connection ended before the last chunk after 50 output chunks" in first
    assert second.startswith("failed requests had delivered at least 50 tokens, which no figure includes")
    assert arm.counters.server_tokens.value == 750
    assert arm.counters.explanation.endswith("just what failed requests had delivered before they failed.")


def test_a_reused_prompt_is_flagged(known: Known, run: Run) -> None:
    arm = one_arm(known, run, "plain", cached_tokens=16)
    assert complaints(arm) == ("all 8 requests, such as number 1: 16 of 32 prompt tokens came from a cache",)


# ------------------------------------------------------------------------------------------------------ the gate


def test_without_verification_nothing_is_measured(known: Known, run: Run) -> None:
    with pytest.raises(VerificationError, match="no verification") as caught:
        run(known("plain"), unverified=False)
    assert "--unverified" in caught.value.fix
    assert not (run.tmp_path / "bench.jsonl").exists()


def test_a_failed_verification_stops_it_and_unverified_marks_it(known: Known, run: Run) -> None:
    with pytest.raises(VerificationError, match="did not pass"):
        run(known("plain"), unverified=False, verification=verification(passed=False))
    request = replace(SMALL, requests=1, warmup=0, prompt_classes=("code",))
    result = run(known("plain"), request, verification=verification(passed=False))
    assert (result.verified, result.verification_scope) == (False, None)


def test_a_verification_of_another_deployment_does_not_count(known: Known, run: Run) -> None:
    with pytest.raises(VerificationError, match="belongs to another deployment"):
        run(known("plain"), unverified=False, verification=verification(deployment="e" * 64))


def test_a_passing_verification_lends_its_scope(known: Known, run: Run) -> None:
    request = replace(SMALL, requests=1, warmup=0, prompt_classes=("code",))
    result = run(known("plain"), request, unverified=False, verification=verification())
    assert (result.verified, result.verification_scope) == (True, "self-consistency only")


# --------------------------------------------------------------------------------------------------- when it fails


def test_ctrl_c_keeps_what_was_measured(known: Known, run: Run) -> None:
    def press(event: Progress) -> None:
        if event.done == 5 and not pressed.is_set():
            pressed.set()
            _thread.interrupt_main()

    pressed = threading.Event()
    result = run(known("plain"), replace(SMALL, requests=50, warmup=1), listener=press)
    assert result.interrupted
    measured = sum(arm.requests for arm in result.arms)
    assert 1 <= measured < 50
    assert any("cut short" in flag for arm in result.arms for flag in arm.flags)
    good = [s for s in read_samples(run.tmp_path / "bench.jsonl") if s.is_good]
    assert len(good) == measured
    assert decode(BenchResult, encode(result)) == result
    again = recompute(
        result, run.tmp_path / "bench.jsonl", ceiling=CEILING, request=replace(SMALL, requests=50, warmup=1)
    )
    assert again == result


def test_ctrl_c_before_the_first_answer_keeps_an_empty_result(known: Known, run: Run) -> None:
    threading.Timer(0.3, _thread.interrupt_main).start()
    result = run(known("plain"), script={"ttft_s": 30.0})
    assert result.interrupted
    assert [arm.requests for arm in result.arms] == [0, 0]
    assert result.arms[0].metrics["ttft_s"].mean.reason == "the benchmark ended before this arm began"


def test_nobody_there_is_an_error(run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = Endpoint(base_url=f"http://127.0.0.1:{taken.getsockname()[1]}/v1", model="m")
        with pytest.raises(PrerequisiteError, match="cannot be measured") as caught:
            run(endpoint, has_counters=False)
    assert "connection refused" in caught.value.why


def test_a_refused_key_is_an_error(known: Known, run: Run) -> None:
    with pytest.raises(PrerequisiteError, match="refuses the key") as caught:
        run(known("plain"), script={"status": 401, "body": "{}"})
    assert "--api-key-file" in caught.value.fix


def test_a_server_that_refuses_every_way_of_asking_is_an_error(known: Known, run: Run) -> None:
    with pytest.raises(EngineError, match="answers no streamed request") as caught:
        run(known("plain"), script={"status": 500, "body": '{"error": {"message": "no kernel"}}'})
    assert caught.value.why.count("500: no kernel") == 3


def test_a_server_that_dies_under_way_ends_it_with_what_there_is(
    run: Run, own_server: tuple[Endpoint, Callable[[], None]]
) -> None:
    endpoint, kill = own_server

    def die(event: Progress) -> None:
        if event.done == 4:
            kill()

    result = run(endpoint, replace(SMALL, requests=40), listener=die)
    code, prose = result.arms
    assert code.requests >= 1
    assert code.failed + prose.failed > 0
    # It does not go on to the end against a server that is gone.
    assert code.requests + code.failed < 40
    assert any("nothing listens" in flag for arm in result.arms for flag in arm.flags)
    assert any("cut short" in flag for flag in code.flags)


def test_a_server_that_fails_from_the_first_request_on_is_an_error(known: Known, run: Run) -> None:
    with pytest.raises(EngineError, match="not one request could be measured") as caught:
        run(known("cut_one_in_8"), script={"cut_one_in": 1, "tokens": 20}, request=replace(SMALL, warmup=0))
    assert "connection ended before the last chunk" in caught.value.why


def test_a_request_that_makes_no_sense_leaves_no_file(known: Known, run: Run) -> None:
    with pytest.raises(InputError):
        run(known("plain"), replace(SMALL, requests=0))
    assert not (run.tmp_path / "bench.jsonl").exists()


def test_random_is_not_shared_with_anybody(known: Known, run: Run) -> None:
    random.seed(5)
    expected = random.random()
    random.seed(5)
    run(known("plain"), replace(SMALL, requests=1, warmup=0, prompt_classes=("code",)))
    assert random.random() == expected

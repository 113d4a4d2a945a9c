"""How fast is it, as its client sees it? Read :func:`bench`; :func:`recompute` makes the figures again from disk.

The order: no speed without a passing verification; one tiny request to find out how to ask; then block after block,
each finished request on disk at once, the engine's counters read around each block. Figures are made at the end from
what is on disk, so an interrupted run differs from a whole one only in how much there is.

Does not do: judging answers (``verify/``), or any figure itself (``bench/summary.py``).
"""

from __future__ import annotations

import os
import random
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from freehold.bench.ledger import Window, explain_gap
from freehold.bench.payload import Style, build_payload, choose_style
from freehold.bench.prompts import Prompt, load_prompts, make_prompts
from freehold.bench.samples import Sample, SampleFile, SampleKey, read_samples
from freehold.bench.schedule import Block, plan_blocks
from freehold.bench.summary import ArmKey, summarise
from freehold.client.api import Endpoint, StreamTrace
from freehold.client.stream import stream_many
from freehold.engines.interface import Dialect
from freehold.errors import EngineError, FreeholdError, VerificationError
from freehold.evidence import Evidence
from freehold.progress import Listener, Progress, ignore
from freehold.records.base import sha256_hex
from freehold.records.bench import BenchResult, CounterGap
from freehold.records.recipe import BenchRequest
from freehold.records.verification import Verification
from freehold.units import format_tok_per_s
from freehold.world import World, utc_text

__all__ = ["bench", "recompute"]

_STAGE: Final = "bench"
_SETTLE_S: Final = 1.0
"""How long the engine's counters are given to book what was delivered already."""
_SETTLE_STEP_S: Final = 0.1


def bench(
    endpoint: Endpoint,
    dialect: Dialect,
    world: World,
    request: BenchRequest,
    *,
    made_from: Mapping[str, str],
    ceiling: Evidence,
    verification: Verification | None,
    unverified: bool = False,
    samples_path: Path,
    listener: Listener = ignore,
    command: str,
    seed: int = 0,
    node: Mapping[str, str] | None = None,
    load: Callable[[], float | None] | None = None,
    timeout_s: float = 300.0,
    tls: ssl.SSLContext | None = None,
) -> BenchResult:
    """Measure a server and keep every sample.

    Args:
        endpoint: The server.
        dialect: How to ask it for a fixed length, and for its counters.
        world: Clock, and HTTP for the counters.
        request: What to measure.
        made_from: sha256 of the records it follows from, by name.
        ceiling: The plan's upper bound on decode speed, tok/s.
        verification: The verification of this deployment.
        unverified: Measure although no verification passed; the result says so.
        samples_path: Where the raw samples go; an existing file stays, and a free name beside it is taken.
        listener: Told about each finished request.
        command: How to measure it again.
        seed: Source of prompts' order and nonces.
        node: Facts of the client's machine; its processor and cores are read if None.
        load: The machine's load average over one minute; read from the system if None.
        timeout_s: Longest silence of a stream.
        tls: Settings for ``https``.

    Returns:
        All arms. Ctrl-C gives those that were measured, marked as interrupted.

    Raises:
        VerificationError: No passing verification stands behind it, and ``unverified`` is not set.
        InputError: The request cannot be measured.
        PrerequisiteError: The server cannot be reached or refuses the key, or the samples cannot be written.
        EngineError: It answers no streamed request, or not one of those that count.
    """
    _check_verification(verification, made_from, unverified=unverified)
    blocks = plan_blocks(request)
    started_at, started_s = utc_text(world.now()), world.monotonic()
    read_load = load or _load_average
    facts = {**(_read_node(world) if node is None else node), "load before": _load_text(read_load())}
    interrupted = False
    with SampleFile(samples_path) as file:
        work = _Measurement(
            endpoint=endpoint,
            dialect=dialect,
            world=world,
            request=request,
            file=file,
            listener=listener,
            seed=seed,
            timeout_s=timeout_s,
            tls=tls,
            total=sum(block.count for block in blocks),
        )
        try:
            interrupted = not work.run(blocks)
        except KeyboardInterrupt:
            interrupted = True
    samples = tuple(file.samples.values())
    planned = _planned(blocks)
    if not interrupted and not any(sample.is_good for sample in samples):
        first = next((sample.metrics.error for sample in samples if sample.metrics.error), None)
        raise EngineError(
            "not one request could be measured",
            why=first or "every answer was empty",
            fix="look into the server's log; what arrived is in the samples file",
            facts={"requests": len(samples)},
        )
    facts |= {
        "load after": _load_text(read_load()),
        "arrivals stamped by": " and ".join(sorted({s.stamp for s in samples if s.is_good})) or "nobody",
        "asked by": work.style.value if work.style is not None else "nothing",
        "seed": str(seed),
        **{f"{name} prompts": load_prompts(name).sha256[:12] for name in request.prompt_classes},
    }
    arms = summarise(samples, gaps=work.explain(started_at), ceiling=ceiling, planned=planned, date=started_at)
    result = BenchResult(
        made_from=dict(made_from),
        verified=verification is not None and verification.passed,
        verification_scope=verification.scope if verification is not None and verification.passed else None,
        interrupted=interrupted,
        arms=arms,
        samples={file.path.name: sha256_hex(file.path.read_bytes())},
        started_at=started_at,
        wall_s=world.monotonic() - started_s,
        command=command,
        node=facts,
    )
    listener(Progress(stage=_STAGE, message=_headline(result), is_final=True))
    return result


def recompute(result: BenchResult, samples_path: Path, *, ceiling: Evidence, request: BenchRequest) -> BenchResult:
    """Make all figures of a benchmark again from its raw samples.

    The engine's counter readings are not in the samples; they are taken from the result.

    Args:
        result: The benchmark's record.
        samples_path: Its samples file.
        ceiling: The plan's upper bound.
        request: What was asked for.

    Raises:
        InputError: The samples cannot be read.
    """
    samples = read_samples(samples_path)
    gaps = {(arm.prompt_class, arm.concurrency): arm.counters for arm in result.arms}
    arms = summarise(
        samples, gaps=gaps, ceiling=ceiling, planned=_planned(plan_blocks(request)), date=result.started_at
    )
    return replace(result, arms=arms, samples={samples_path.name: sha256_hex(samples_path.read_bytes())})


@dataclass(slots=True, kw_only=True)
class _Measurement:
    """One benchmark under way."""

    endpoint: Endpoint
    dialect: Dialect
    world: World
    request: BenchRequest
    file: SampleFile
    listener: Listener
    seed: int
    timeout_s: float
    tls: ssl.SSLContext | None
    total: int
    style: Style | None = None
    windows: dict[ArmKey, list[Window]] = field(default_factory=dict)

    def run(self, blocks: Sequence[Block]) -> bool:
        """Work through all blocks; returns False when Ctrl-C ended it early."""
        generator = random.Random(self.seed)
        probe = make_prompts(blocks[0].prompt_class, 1, generator)[0]
        self._tell("asking for one token", 0)
        self.style = choose_style(self.endpoint, probe, fields=self._fields(1), timeout_s=self.timeout_s, tls=self.tls)
        # One generator per class: the prompts of an arm do not depend on which other arms there are.
        generators = {name: random.Random(f"{self.seed}/{name}") for name in self.request.prompt_classes}
        index = 0
        for block in blocks:
            prompts = make_prompts(block.prompt_class, block.count, generators[block.prompt_class])
            if not self._run_block(block, prompts, index):
                return False
            index += block.count
            failed = [self.file.samples.get(i) for i in range(index - block.count, index)]
            if not block.is_warmup and all(sample is not None and not sample.is_good for sample in failed):
                # Nobody is served any more; waiting for every further request to fail helps nobody either.
                break
        return True

    def _run_block(self, block: Block, prompts: Sequence[Prompt], first_index: int) -> bool:
        assert self.style is not None
        payloads = [
            build_payload(
                self.style,
                self.endpoint,
                prompt,
                output_tokens=self.request.output_tokens,
                fields=self._fields(self.request.output_tokens),
                seed=self.seed,
            )
            for prompt in prompts
        ]

        def keep(position: int, trace: StreamTrace) -> None:
            key = SampleKey(
                index=first_index + position,
                prompt_class=block.prompt_class,
                concurrency=block.concurrency,
                block=block.number,
                is_warmup=block.is_warmup,
                prompt=prompts[position].label,
                nonce=prompts[position].nonce,
                requested_tokens=self.request.output_tokens,
            )
            self._tell(_describe(block, self.file.add(key, trace)), len(self.file.samples))

        before = None if block.is_warmup else self._counters()
        batch = stream_many(
            self.endpoint,
            self.style.path,
            payloads,
            concurrency=block.concurrency,
            timeout_s=self.timeout_s,
            on_trace=keep,
            tls=self.tls,
            keeps_traces=False,
        )
        if not block.is_warmup and not batch.is_interrupted:
            delivered = sum(
                self.file.samples[first_index + i].metrics.output_tokens
                for i in range(block.count)
                if first_index + i in self.file.samples
            )
            window = Window(before=before, after=self._settled(before, delivered))
            self.windows.setdefault((block.prompt_class, block.concurrency), []).append(window)
        return not batch.is_interrupted

    def explain(self, date: str) -> dict[ArmKey, CounterGap]:
        """The three ledgers of every arm that has a window; blocks that were interrupted have none and are left out."""
        gaps: dict[ArmKey, CounterGap] = {}
        for key, windows in self.windows.items():
            arm = [s for s in self.file.samples.values() if (s.key.prompt_class, s.key.concurrency) == key]
            inside = [s for s in arm if s.is_counted and s.key.block < len(windows)]
            good = [s for s in inside if s.is_good]
            gaps[key] = explain_gap(
                windows=windows,
                client_tokens=sum(s.metrics.output_tokens for s in good),
                usage_tokens=sum(s.metrics.usage_tokens or 0 for s in good),
                requests=len(inside),
                requests_without_usage=sum(s.metrics.usage_tokens is None for s in good),
                failed_tokens=sum(s.metrics.output_tokens for s in inside if not s.is_good),
                warmup_tokens=sum(s.metrics.output_tokens for s in arm if s.key.is_warmup),
                date=date,
            )
        return gaps

    def _fields(self, output_tokens: int) -> dict[str, object]:
        return self.dialect.generation_fields(output_tokens=output_tokens, is_fixed_length=True)

    def _counters(self) -> Mapping[str, float] | None:
        try:
            return self.dialect.counters(self.world, self.endpoint)
        except FreeholdError:
            return None

    def _settled(self, before: Mapping[str, float] | None, delivered: int) -> Mapping[str, float] | None:
        """The counters once they hold what was delivered, or after a second: engines book some time after they send."""
        after = self._counters()
        waited_s = 0.0
        while (
            before is not None
            and after is not None
            and "output_tokens" in after
            and 0 <= after["output_tokens"] - before.get("output_tokens", 0.0) < delivered
            and waited_s < _SETTLE_S
        ):
            self.world.sleep(_SETTLE_STEP_S)
            waited_s += _SETTLE_STEP_S
            after = self._counters()
        return after

    def _tell(self, message: str, done: int) -> None:
        self.listener(Progress(stage=_STAGE, message=message, done=done, total=self.total, unit="requests"))


def _check_verification(verification: Verification | None, made_from: Mapping[str, str], *, unverified: bool) -> None:
    if unverified:
        return
    if verification is None or not verification.passed:
        what = "no verification" if verification is None else "the verification did not pass"
        raise VerificationError(
            f"no speed is measured: {what}",
            why="a fast answer that is wrong is worth nothing",
            fix="run `freehold verify` first; `--unverified` measures anyway and marks every figure",
        )
    shared = set(verification.made_from) & set(made_from)
    changed = sorted(name for name in shared if verification.made_from[name] != made_from[name])
    if changed:
        raise VerificationError(
            "no speed is measured: the verification belongs to another deployment",
            why=f"{', '.join(changed)} changed after it was verified",
            fix="run `freehold verify` again",
        )


def _planned(blocks: Sequence[Block]) -> dict[ArmKey, int]:
    planned: dict[ArmKey, int] = {}
    for block in blocks:
        if not block.is_warmup:
            key = (block.prompt_class, block.concurrency)
            planned[key] = planned.get(key, 0) + block.count
    return planned


def _describe(block: Block, sample: Sample) -> str:
    streams = "one stream" if block.concurrency == 1 else f"{block.concurrency} streams"
    if block.is_warmup:
        return f"{block.prompt_class}, {streams}: warm-up"
    if sample.metrics.error is not None:
        return f"{block.prompt_class}, {streams}: failed, {sample.metrics.error}"
    speed = sample.metrics.decode_tok_per_s
    return f"{block.prompt_class}, {streams}" + (f": {format_tok_per_s(speed)}" if speed is not None else "")


def _headline(result: BenchResult) -> str:
    speeds = [
        f"{arm.prompt_class} {arm.metrics['decode_tok_per_s'].mean.text}" for arm in result.arms if arm.concurrency == 1
    ]
    done = sum(arm.requests for arm in result.arms)
    state = "interrupted after" if result.interrupted else "measured"
    return f"{state} {done} requests" + (f"; one stream: {', '.join(speeds)}" if speeds else "")


def _read_node(world: World) -> dict[str, str]:
    from freehold.hardware.processor import count_cores, read_processor

    return {"processor": read_processor(world), "cores": str(count_cores())}


def _load_average() -> float | None:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _load_text(load: float | None) -> str:
    return "unknown" if load is None else f"{load:.2f}"

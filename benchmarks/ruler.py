"""How far is freehold's benchmark from the truth? Its figures against the send log of a server of known timing.

Method. A server of known timing (``known_server.py``) runs on one core; the whole benchmark stage, ``freehold.bench``,
runs on another in a process of its own, as a user would run it: prompts, counters, samples on disk and all. Truth is
the server's log: the kernel's receive stamp of each request and the wall clock just before each send. Every request is
paired with its log entry by the nonce of its prompt. Two errors are given: *paired*, request by request (chunk by
chunk), and *as published*, the difference of the two p99 over all requests, which is all that can be said of tools that
do not publish their samples. A run in which the client had to wait for a processor is repeated, at most four times; all
of them are shown and noted. CPU is user and system time of the whole client process, start-up included.

First plain streams at 1, 16, 64 and 256 at a time (200 ms to the first token, 20 ms per token, 100 tokens), then the
difficult ones at 16: several tokens per chunk, reasoning, a false usage, a stall, an early role, an early stop, cut
streams. The figures of other clients (``peer_clocks.toml``) are of the same server on the same kind of machine, idle.

    python benchmarks/ruler.py [--quick] [--no-record] [--results FILE] [--docs]

``--docs`` measures nothing: it writes the last recorded run into docs/concepts/ruler.md.

Does not do: measuring other tools.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ruler_report import DOCUMENT, RESULTS, last_record, met_goals, render, replace_figures

HERE = Path(__file__).resolve().parent
STREAMS = (1, 16, 64, 256)
TOO_SLOW = "the client could not keep up"
MAX_REPEATS = 4
"""How often a run is repeated that other work on the machine disturbed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Median, p99 and largest of some errors, in ms; the largest by magnitude."""

    p50: float
    p99: float
    worst: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One script at one concurrency."""

    script: str
    streams: int
    requests: int
    failed: int
    lost: int
    unmeasured: int
    tokens: int
    ttft: Spread
    chunk: Spread
    itl: Spread
    tpot: Spread
    e2e: Spread
    ttft_p99_ms: float
    itl_p99_ms: float
    tok_per_s: float
    tok_per_s_true: float
    load_held_percent: float
    cpu_s: float
    peak_rss_mib: float
    stamps: str
    output_tokens: float | None
    flags: tuple[str, ...]
    verdict: str
    disturbed: tuple[str, ...] = ()

    @property
    def cpu_per_1000_s(self) -> float:
        return self.cpu_s / self.tokens * 1000

    @property
    def tok_per_s_percent(self) -> float:
        return (self.tok_per_s / self.tok_per_s_true - 1) * 100 if self.tok_per_s_true else 0.0


# ------------------------------------------------------------------------------------------- the client process


class KnownDialect:
    """What there is to ask of the server of known timing."""

    name = "known"

    def __init__(self, script: Mapping[str, object]) -> None:
        self.script = script

    def generation_fields(self, *, output_tokens: int, is_fixed_length: bool) -> dict[str, object]:
        return {"max_tokens": output_tokens, "script": dict(self.script)}

    def counters(self, world: Any, endpoint: Any) -> dict[str, float]:
        return json.loads(world.http("GET", f"{endpoint.root_url}/counters").body)


def run_client(order: Mapping[str, Any]) -> None:
    """Run the benchmark stage and write its record; this is the process whose CPU time is counted."""
    from freehold.bench.run import bench
    from freehold.client.api import Endpoint
    from freehold.evidence import Evidence
    from freehold.records.base import encode
    from freehold.records.recipe import BenchRequest
    from freehold.world import LocalWorld

    folder = Path(order["folder"])
    root = f"http://127.0.0.1:{order['port']}" + ("/chat-only" if order["is_chat"] else "")
    result = bench(
        Endpoint(base_url=f"{root}/v1", model=order["script"]),
        KnownDialect(order["overrides"]),
        LocalWorld(),
        BenchRequest(
            requests=order["requests"],
            warmup=0,
            output_tokens=order["tokens"],
            prompt_classes=("prose",),
            concurrency=(order["streams"],),
        ),
        made_from={},
        ceiling=Evidence.not_measured("a script has no ceiling", "tok/s"),
        verification=None,
        unverified=True,
        samples_path=folder / "bench.jsonl",
        command="benchmarks/ruler.py",
        node={},
    )
    (folder / "bench.json").write_bytes(encode(result))


# ----------------------------------------------------------------------------------------------------- measuring


def measure_quiet(script: str, streams: int, requests: int, **more: Any) -> Row:
    """Run one script until nothing else on the machine disturbed it; the runs before that are noted in the row.

    What decides is not the error, but whether the benchmark itself said that it had to wait for a processor.
    """
    disturbed: list[str] = []
    while True:
        row = measure(script, streams, requests, **more)
        if not (is_late := [flag for flag in row.flags if TOO_SLOW in flag]) or len(disturbed) == MAX_REPEATS:
            return replace(row, disturbed=tuple(disturbed))
        show(row)
        disturbed.append(f"chunk error p99 {row.chunk.p99:.3f} ms; {is_late[0]}")


def measure(
    script: str, streams: int, requests: int, *, overrides: Mapping[str, object], is_chat: bool, tokens: int
) -> Row:
    """Run one script and compare."""
    from known_server import SCRIPTS, running

    from freehold.bench.samples import decode_sample, decode_trace

    cores = sorted(os.sched_getaffinity(0))
    server_core, client_core = (cores[0], cores[1]) if len(cores) > 1 else (None, None)
    with tempfile.TemporaryDirectory() as name, running(core=server_core) as port:
        order = {
            "folder": name,
            "port": port,
            "script": script,
            "streams": streams,
            "requests": requests,
            "overrides": dict(overrides),
            "is_chat": is_chat,
            "tokens": tokens,
        }
        child = subprocess.Popen([sys.executable, __file__, "--client", json.dumps(order)])
        if client_core is not None:
            os.sched_setaffinity(child.pid, {client_core})
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            raise SystemExit(f"the client process ended with {child.returncode}")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/log", timeout=60) as reply:
            log = {entry["id"]: entry for entry in map(json.loads, reply.read().splitlines())}
        arm = json.loads((Path(name) / "bench.json").read_bytes())["arms"][0]
        lines = (Path(name) / "bench.jsonl").read_bytes().splitlines()
        pairs = [(decode_sample(line), decode_trace(line)) for line in lines]
    row = compare(arm, pairs, log, cpu_s=usage.ru_utime + usage.ru_stime, rss_kib=usage.ru_maxrss)
    plan = SCRIPTS[script]
    ttft_s = float(overrides.get("ttft_s", plan.ttft_s))  # type: ignore[arg-type]
    step_s = float(overrides.get("step_s", plan.step_s))  # type: ignore[arg-type]
    ideal = streams * tokens / (ttft_s + step_s * (tokens - 1))
    found = {**row, "load_held_percent": (row["tok_per_s_true"] / ideal - 1) * 100}
    return Row(script=script, streams=streams, verdict=judge(script, found, arm, log), **found)


def compare(
    arm: Mapping[str, Any], pairs: Sequence[tuple[Any, Any]], log: Mapping[str, Any], *, cpu_s: float, rss_kib: int
) -> dict[str, Any]:
    """All errors of one run, reported minus true."""
    ttft, e2e, tpot, itl, chunk = [], [], [], [], []
    reported: dict[str, list[float]] = {"ttft": [], "itl": []}
    true: dict[str, list[float]] = {"ttft": [], "itl": []}
    blocks: dict[int, list[tuple[float, float]]] = {}
    true_tokens = lost = unmeasured = 0
    for sample, trace in pairs:
        entry = log[sample.key.nonce]
        sends = [(ns, tokens) for ns, tokens, is_output in entry["sends"] if is_output]
        blocks.setdefault(sample.key.block, []).append((entry["request_ns"] / 1e9, sends[-1][0] / 1e9))
        if entry["is_cut"]:
            continue
        true_tokens += sum(tokens for _, tokens in sends)
        arrivals = [event.at_s for event in trace.events if event.has_output]
        lost += len(sends) - len(arrivals)
        if sample.metrics.tpot_s is None or len(arrivals) != len(sends):
            unmeasured += 1
            continue
        metrics = sample.metrics
        after_first = sum(tokens for _, tokens in sends[1:])
        true_ttft = (sends[0][0] - entry["request_ns"]) / 1e9
        true_itl = [(b - a) / 1e9 for (a, _), (b, _) in itertools.pairwise(sends)]
        ttft.append(metrics.ttft_s - true_ttft)
        e2e.append(metrics.e2e_s - (sends[-1][0] - entry["request_ns"]) / 1e9)
        tpot.append(metrics.tpot_s - (sends[-1][0] - sends[0][0]) / 1e9 / after_first)
        itl += [a - b for a, b in zip(metrics.itl_s, true_itl, strict=True)]
        chunk += [a - ns / 1e9 for a, (ns, _) in zip(arrivals, sends, strict=True)]
        reported["ttft"].append(metrics.ttft_s)
        reported["itl"] += metrics.itl_s
        true["ttft"].append(true_ttft)
        true["itl"] += true_itl
    wall_s = sum(max(end for _, end in block) - min(start for start, _ in block) for block in blocks.values())
    return {
        "requests": arm["requests"],
        "failed": arm["failed"],
        "lost": lost,
        "unmeasured": unmeasured,
        "tokens": sum(tokens for entry in log.values() for _, tokens, _ in entry["sends"]),
        "ttft": spread(ttft),
        "chunk": spread(chunk),
        "itl": spread(itl),
        "tpot": spread(tpot),
        "e2e": spread(e2e),
        "ttft_p99_ms": (quantile(reported["ttft"], 0.99) - quantile(true["ttft"], 0.99)) * 1e3,
        "itl_p99_ms": (quantile(reported["itl"], 0.99) - quantile(true["itl"], 0.99)) * 1e3,
        "tok_per_s": arm["output_tok_per_s"]["value"],
        "tok_per_s_true": true_tokens / wall_s,
        "cpu_s": cpu_s,
        "peak_rss_mib": rss_kib / 1024,
        "stamps": "/".join(sorted({sample.stamp for sample, _ in pairs})),
        "output_tokens": arm["output_tokens"]["value"],
        "flags": tuple(arm["flags"]),
    }


def judge(script: str, row: Mapping[str, Any], arm: Mapping[str, Any], log: Mapping[str, Any]) -> str:
    """``right``, or what is wrong: figures within 1 % of the log, and the difficulty called by its name."""
    cut = sum(entry["is_cut"] for entry in log.values())
    true_tokens = {sum(t for _, t, _ in entry["sends"]) for entry in log.values() if not entry["is_cut"]} - {1}
    wrong = []
    if abs(row["tok_per_s"] / row["tok_per_s_true"] - 1) > 0.01:
        wrong.append(f"{row['tok_per_s']:.0f} tok/s for {row['tok_per_s_true']:.0f}")
    if true_tokens != {row["output_tokens"]}:
        wrong.append(f"{row['output_tokens']} tokens for {sorted(true_tokens)}")
    if row["unmeasured"]:
        wrong.append(f"{row['unmeasured']} requests without figures")
    if row["failed"] != cut or row["lost"]:
        wrong.append(f"{row['failed']} failed and {row['lost']} chunks lost for {cut} cut streams")
    true_tpot_ms = arm["metrics"]["tpot_s"]["mean"]["value"] * 1e3 - row["tpot"].p50
    for name, error_ms, limit_ms in (
        ("TTFT", row["ttft"].p99, 2.0),
        ("TPOT", row["tpot"].p99, 0.01 * true_tpot_ms),
    ):
        if abs(error_ms) > limit_ms:
            wrong.append(f"{name} is off by {error_ms:+.2f} ms")
    named = {
        "usage_plus_10": r"`usage` states \d+ tokens \(\+10 %\)",
        "stall": r"stalled [\d.]+ m?s after token \d+$",
        "stops_at_60": r"ended after \d+ of \d+ tokens asked for",
        "cut_one_in_8": r"requests failed, such as number \d+: the connection ended",
    }
    gaps_ns = [b[0] - a[0] for entry in log.values() for a, b in itertools.pairwise(entry["sends"])]
    others = [flag for flag in row["flags"] if TOO_SLOW not in flag]
    if script != "stall" and max(gaps_ns) > 200_000_000:
        # The server itself had to wait for its processor: what is called a stall was one.
        others = [flag for flag in others if ": stalled " not in flag]
    if script in named and not any(re.search(named[script], flag) for flag in others):
        wrong.append("does not say so")
    if script == "reasoning" and "first_answer_s" not in arm["metrics"]:
        wrong.append("does not tell the answer from the reasoning")
    if script not in named and others:
        wrong.append(f"false alarm: {' | '.join(others)}")
    is_late = row["chunk"].worst > 5.0
    says_late = any(TOO_SLOW in flag for flag in row["flags"])
    if is_late and not says_late:
        wrong.append(f"an arrival is off by {row['chunk'].worst:.1f} ms, and nothing says so")
    if not wrong:
        return "right"
    return ("disturbed by other work, which it says: " if is_late and says_late else "") + "; ".join(wrong)


def quantile(values: Sequence[float], share: float) -> float:
    """Linear interpolation between order statistics."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def spread(errors_s: Sequence[float]) -> Spread:
    """Errors in ms; p99 is of their magnitude, so that early and late count alike."""
    sizes = [abs(e) * 1e3 for e in errors_s]
    return Spread(
        p50=quantile([e * 1e3 for e in errors_s], 0.5),
        p99=quantile(sizes, 0.99),
        worst=max(sizes),
        n=len(errors_s),
    )


# ------------------------------------------------------------------------------------------------------ the run


def run(*, is_quick: bool) -> dict[str, Any]:
    """All rows, with the facts of the machine."""
    from freehold import __version__

    load_before = os.getloadavg()[0]
    quick = {"ttft_s": 0.05, "step_s": 0.005, "tokens": 40} if is_quick else {}
    tokens = 40 if is_quick else 100
    scripts = ("speculation", "batched", "reasoning", "usage_plus_10", "stall", "role_early", "stops_at_60")
    special = {
        "reasoning": {"reasoning": 16},
        "stall": {"stall_after": 20, "stall_s": 0.5},
        "role_early": {"role_s": 0.01},
        "stops_at_60": {"stop_at": 24},
    }
    rows: list[Row] = []
    for streams in STREAMS:
        requests = (2 if streams == 1 else streams) if is_quick else (6 if streams == 1 else 8 * streams)
        rows.append(measure_quiet("plain", streams, requests, overrides=quick, is_chat=False, tokens=tokens))
        show(rows[-1])
    for script in (*scripts, "cut_one_in_8"):
        overrides = {**quick, **(special.get(script, {}) if is_quick else {})}
        is_chat = script in ("reasoning", "role_early")
        rows.append(measure_quiet(script, 16, 16, overrides=overrides, is_chat=is_chat, tokens=tokens))
        show(rows[-1])
    return {
        "schema": "freehold-ruler/1",
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": "python benchmarks/ruler.py" + (" --quick" if is_quick else ""),
        "freehold": __version__,
        "commit": _git("rev-parse", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks")),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "load_before": load_before,
        "load_after": os.getloadavg()[0],
        "rows": [
            {**asdict(r), "cpu_per_1000_s": r.cpu_per_1000_s, "tok_per_s_percent": r.tok_per_s_percent} for r in rows
        ],
    }


def show(row: Row) -> None:
    """One row while the run goes on."""
    errors = "  ".join(
        f"{name} {error.p50:+7.3f} {error.p99:7.3f}"
        for name, error in (
            ("TTFT", row.ttft),
            ("chunk", row.chunk),
            ("ITL", row.itl),
            ("TPOT", row.tpot),
            ("E2E", row.e2e),
        )
    )
    print(
        f"{row.script:<14} {row.streams:>3}  {errors}  tok/s {row.tok_per_s_percent:+.2f} %  "
        f"load {row.load_held_percent:+.1f} %  CPU {row.cpu_per_1000_s:.4f} s  {row.verdict}",
        flush=True,
    )
    for flag in row.flags:
        print(f"{'':<21}says: {flag}")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=HERE.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.processor()


def main() -> int:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter streams and fewer of them; not for the record")
    parser.add_argument("--no-record", action="store_true", help=f"do not append to {RESULTS.name}")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"append here instead of {RESULTS.name}")
    parser.add_argument("--docs", action="store_true", help=f"write the last run into {DOCUMENT.name} and stop")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        run_client(json.loads(options.client))
        return 0
    if options.docs:
        DOCUMENT.write_text(replace_figures(DOCUMENT.read_text(encoding="utf-8"), last_record()), encoding="utf-8")
        return 0
    record = run(is_quick=options.quick)
    print()
    print(render(record))
    print()
    print("\n".join(met_goals(record)))
    if not (options.quick or options.no_record):
        options.results.parent.mkdir(parents=True, exist_ok=True)
        with options.results.open("a", encoding="utf-8") as sink:
            sink.write(json.dumps(record) + "\n")
        print(f"appended to {options.results}")
    return 0 if all(row["verdict"] == "right" for row in record["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())

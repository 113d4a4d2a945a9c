"""How long does a kernel take inside a replayed CUDA graph, and against which ceiling?

Method: one graph holds ``calls`` launches on distinct data (together several times the L2), replayed 20 times after 3
warm-up replays; a sample is one replay between two device events, divided by ``calls``. The figure is the median;
every sample is kept in the record. Arms are timed A B B A, because heat drifts. The ceiling is the rate of a 4 GiB
device-to-device copy in the same process, bytes read plus bytes written.
"""

from __future__ import annotations

import datetime
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import machinery, util
from pathlib import Path
from typing import Any

import torch

CALLS = 20
REPLAYS = 20


@dataclass
class Arm:
    """One implementation: a function of the call's number, and its samples in seconds per call."""

    name: str
    call: Callable[[int], Any]
    samples_s: list[float] = field(default_factory=list)
    graph: Any = None

    @property
    def median_s(self) -> float:
        return statistics.median(self.samples_s)


def capture(arm: Arm, calls: int) -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(min(3, calls)):
            arm.call(i)
    torch.cuda.synchronize()
    arm.graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(arm.graph):
        for i in range(calls):
            arm.call(i)


def time_arms(arms: list[Arm], calls: int = CALLS, replays: int = REPLAYS) -> None:
    """Fill ``samples_s`` of every arm: half of the replays in the order given, half in reverse."""
    for arm in arms:
        capture(arm, calls)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for order in (arms, arms[::-1]):
        for arm in order:
            for _ in range(3):
                arm.graph.replay()
            for _ in range(replays // 2):
                start.record()
                arm.graph.replay()
                end.record()
                torch.cuda.synchronize()
                arm.samples_s.append(start.elapsed_time(end) * 1e-3 / calls)
    for arm in arms:
        arm.graph = None


def copy_bytes_per_s(size: int = 4 << 30) -> float:
    """Bytes read plus written per second by a large device-to-device copy."""
    source = torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    samples = []
    for n in range(13):
        start.record()
        target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        if n >= 3:
            samples.append(start.elapsed_time(end) * 1e-3)
    return 2 * size / statistics.median(samples)


def load_released(path: str) -> Any:
    """Load ``_C_gguf.abi3.so`` from the released wheel and return its torch operators."""
    loader = machinery.ExtensionFileLoader("_C_gguf", path)
    spec = util.spec_from_loader("_C_gguf", loader)
    assert spec is not None
    loader.exec_module(util.module_from_spec(spec))
    return torch.ops._C_gguf


def _output_of(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def environment() -> dict[str, Any]:
    """What must be known to repeat the run."""
    query = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.limit,temperature.gpu"
    return {
        "utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": [Path(part).name for part in sys.argv],
        "commit": os.environ.get("BENCH_COMMIT") or _output_of("git", "rev-parse", "HEAD"),
        "gpu": _output_of("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"),
        "gpu_fields": query,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }


class Report:
    """Prints a table and appends one JSON line per case."""

    def __init__(self, path: str | None, copy_rate: float) -> None:
        self.path, self.copy_rate, self.environment = path, copy_rate, environment()
        print(f"# {self.environment['gpu']}; torch {torch.__version__}; copy {copy_rate / 1e12:.2f} TB/s")
        print(f"{'case':<44}{'M':>3} {'arm':<28}{'µs':>8} {'TB/s':>6} {'share':>6} {'ratio':>6}", flush=True)

    def add(self, case: str, tokens: int, num_bytes: float, arms: list[Arm], baseline: str, **facts: Any) -> None:
        """Record one case; ``ratio`` is the baseline's time over the arm's."""
        base = next((a.median_s for a in arms if a.name == baseline), None)
        for arm in arms:
            rate = num_bytes / arm.median_s
            ratio = f"{base / arm.median_s:6.2f}" if base else "     –"
            print(
                f"{case:<44}{tokens:>3} {arm.name:<28}{arm.median_s * 1e6:8.2f} {rate / 1e12:6.2f} "
                f"{rate / self.copy_rate:6.1%} {ratio}",
                flush=True,
            )
            record = {
                "schema": "freehold.kernel-bench/1",
                "case": case,
                "tokens": tokens,
                "arm": arm.name,
                "baseline": baseline,
                "weight_bytes": num_bytes,
                "median_s": arm.median_s,
                "samples_s": arm.samples_s,
                "copy_bytes_per_s": self.copy_rate,
                **facts,
                **self.environment,
            }
            if self.path:
                with Path(self.path).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")

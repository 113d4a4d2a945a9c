"""How long does `freehold --help` take beside a bare typer app with as many commands?

Method. Three programs, each started as a process of its own with the same interpreter, output thrown away: freehold, a
typer app with typer's defaults (help drawn by rich), and a typer app with plain help, which is the stricter of the two.
A round runs them in the order A B C C B A, so that drift hits all alike; the first rounds are dropped. A sample is the
wall time from start to exit. The figure is the ratio of freehold to each bare app, computed per round and summarised by
its median with a 95 % interval of order statistics (binomial, no distribution assumed). Goal: at most 1.2.

    python benchmarks/startup.py [--rounds 25] [--record]

Does not do: judging what a command needs once it runs.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from freehold import __version__
from freehold.cli.main import build_group

RESULTS = Path(__file__).resolve().parent / "results" / "startup.jsonl"
GOAL = 1.2
WARMUP_ROUNDS = 2
BARE = """
import typer
app = typer.Typer({options})
def make(name):
    def command(count: int = 1) -> None: "Do something."
    app.command(name)(command)
for name in {names!r}: make(name)
app()
"""


def programs() -> dict[str, str]:
    """Source text of each arm, by name."""
    names = list(build_group().commands)
    return {
        "freehold": "import sys; from freehold.cli.main import main; sys.exit(main())",
        "typer with rich help": BARE.format(options="", names=names),
        "typer with plain help": BARE.format(options="rich_markup_mode=None", names=names),
    }


def run_once(source: str) -> float:
    """Seconds one program takes to show its help."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", source, "--help"], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun


def median_interval(values: list[float], level: float = 0.95) -> tuple[float, float]:
    """Distribution-free interval of the median: the order statistics that cover it with at least that level.

    Source: order statistics of the sign test, e.g. Conover, "Practical Nonparametric Statistics", section 3.2.
    """
    ordered, n = sorted(values), len(values)
    tail, k = 0.0, 0
    while True:
        tail += math.comb(n, k) / 2**n
        if tail > (1 - level) / 2:
            break
        k += 1
    k = max(k, 1)
    return ordered[k - 1], ordered[n - k]


def measure(rounds: int) -> dict[str, list[float]]:
    """Seconds per arm and round, mean of the two runs of a round."""
    arms = programs()
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(WARMUP_ROUNDS + rounds):
        taken: dict[str, float] = dict.fromkeys(arms, 0.0)
        for name in [*arms, *reversed(arms)]:
            taken[name] += run_once(arms[name]) / 2
        if number >= WARMUP_ROUNDS:
            for name, value in taken.items():
                seconds[name].append(value)
    return seconds


def main() -> int:
    """Measure, print, and record if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25, help="counted rounds, at least 15")
    parser.add_argument("--record", action="store_true", help=f"append to {RESULTS.name}")
    options = parser.parse_args()
    if options.rounds < 15:
        parser.error("an interval takes at least 15 rounds")
    seconds = measure(options.rounds)
    ratios = {}
    for name, values in seconds.items():
        print(f"{name:<22} median {statistics.median(values) * 1000:6.1f} ms")
        if name != "freehold":
            per_round = [own / bare for own, bare in zip(seconds["freehold"], values, strict=True)]
            low, high = median_interval(per_round)
            ratios[name] = {"median": statistics.median(per_round), "low": low, "high": high, "samples": per_round}
    for name, ratio in ratios.items():
        met = "met" if ratio["high"] <= GOAL else "not met" if ratio["low"] > GOAL else "open"
        print(
            f"freehold over {name}: {ratio['median']:.3f} "
            f"(95 % interval {ratio['low']:.3f} to {ratio['high']:.3f}, n = {options.rounds}; goal {GOAL}: {met})"
        )
    if options.record:
        row = {
            "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "command": f"python benchmarks/startup.py --rounds {options.rounds} --record",
            "freehold": __version__,
            "commit": _git("rev-parse", "HEAD"),
            "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
            "python": platform.python_version(),
            "system": platform.platform(),
            "processor": _processor(),
            "num_commands": len(build_group().commands),
            "goal": GOAL,
            "seconds": seconds,
            "ratios": ratios,
        }
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        with RESULTS.open("a") as sink:
            sink.write(json.dumps(row) + "\n")
    return 0


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=Path(__file__).resolve().parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.processor()


if __name__ == "__main__":
    sys.exit(main())

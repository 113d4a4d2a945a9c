"""How long does ``freehold inspect`` take on the largest checkpoints there are, and how near is that to its ceiling?

Method. Sparse checkpoints with true headers are made in a temporary folder: Kimi-K3 Neuron (GGUF, 9 shards, 2,573
tensors, 330 GB), 200,000 tensors in 100 safetensors shards (1.5 TB), and Kimi-K3's language model as published (96
shards, 497,052 tensors, 1.56 TB). Each sample is a process of its own, so imports and memory count, as for a user:
``freehold inspect --json``, the same without ``--json``, and the library call alone. The ceiling is a process that only
reads the same header bytes (and the index), hashes them, and does nothing else; nothing that looks at every header can
be quicker. A second floor parses them as JSON with the quickest parser at hand and throws the result away.

Wall time is the least of the rounds, because other work on the machine can only add to it; all samples are recorded,
and so is the load of the machine. Peak memory is the kernel's own high-water mark of the process, from one run more.
Files are in the page cache, as after a download.

    python benchmarks/inspect_speed.py [--rounds 5] [--record] [--only k3-neuron]

Does not do: reading over a network, or disks that are slower than memory.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from freehold import __version__
from freehold.models.inventory import read_inventory

RESULTS = Path(__file__).resolve().parent / "results" / "inspect_speed.jsonl"
GOALS_S = {"k3-neuron": 0.3, "200k": 2.0, "k3-native": 2.0}
GOAL_BYTES = {"k3-neuron": 45 * 10**6}

COMMAND = "import sys; from freehold.cli.main import main; sys.exit(main(['inspect', {folder!r}, *{options!r}]))"
PROGRAMS = {
    "inspect --json": COMMAND.replace("{options!r}", "['--json']"),
    "inspect": COMMAND.replace("{options!r}", "[]"),
    "library": (
        "from pathlib import Path; from freehold.models.inventory import read_inventory;"
        " print(read_inventory(Path({folder!r})).tensor_bytes)"
    ),
    "read and hash (ceiling)": (
        "import hashlib, os\n"
        "for name, length in {headers!r}:\n"
        "    f = os.open(os.path.join({folder!r}, name), os.O_RDONLY)\n"
        "    hashlib.sha256(os.pread(f, length, 0)).digest(); os.close(f)\n"
    ),
    "and parse JSON (floor)": (
        "import hashlib, os\n"
        "from pydantic_core import from_json\n"
        "for name, length in {headers!r}:\n"
        "    f = os.open(os.path.join({folder!r}, name), os.O_RDONLY)\n"
        "    data = os.pread(f, length, 0); hashlib.sha256(data).digest(); os.close(f)\n"
        "    from_json(data if name.endswith('.json') else data[8:])\n"
    ),
}


def load_made() -> ModuleType:
    """The writers of checkpoints beside this file."""
    spec = importlib.util.spec_from_file_location("made_checkpoints", Path(__file__).with_name("made_checkpoints.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["made_checkpoints"] = module
    spec.loader.exec_module(module)
    return module


def write_200k(made: ModuleType, folder: Path) -> None:
    """200,000 bfloat16 tensors with the names of a mixture of experts, 1.5 TB in 100 shards."""
    tensors = [
        made.Made(f"model.layers.{layer}.mlp.experts.{expert}.{part}_proj.weight", (1024, 3664), "BF16")
        for layer in range(50)
        for expert in range(1333)
        for part in ("gate", "up", "down")
    ]
    tensors += [made.Made(f"model.layers.{i}.self_attn.o_proj.weight", (1024, 3664), "BF16") for i in range(50)]
    config = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_hidden_layers": 50}
    made.write_safetensors_shards(folder, tensors, 100, config)


def header_lengths(folder: Path) -> list[tuple[str, int]]:
    """What a reader has to look at: every header to its end, and the index."""
    lengths = []
    for path in sorted(folder.iterdir()):
        if path.suffix == ".safetensors":
            with path.open("rb") as file:
                lengths.append((path.name, 8 + int.from_bytes(file.read(8), "little")))
        elif path.suffix == ".gguf":
            from freehold.models.bytesource import FileSource
            from freehold.models.gguf import read_gguf

            with FileSource(path) as source:
                lengths.append((path.name, read_gguf(source).header_bytes))
        else:
            lengths.append((path.name, path.stat().st_size))
    return lengths


TELL_PEAK = """
import atexit, sys
def tell():
    with open("/proc/self/status") as file:
        sys.stderr.write(next(line for line in file if line.startswith("VmHWM")))
atexit.register(tell)
"""


def sample(code: str) -> dict[str, float]:
    """Run a program in a process of its own; wall and CPU seconds."""
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"a sample ended with {process.returncode}")
    return {"wall_s": round(wall_s, 4), "cpu_s": round(usage.ru_utime + usage.ru_stime, 4)}


def peak_bytes(code: str) -> int | None:
    """The most memory a program had, None where the kernel does not tell it."""
    if not Path("/proc/self/status").is_file():
        return None  # resource.getrusage would also count the process that started it
    done = subprocess.run([sys.executable, "-c", TELL_PEAK + code], capture_output=True, text=True, check=True)
    return int(done.stderr.split()[-2]) * 1024


def measure(name: str, folder: Path, rounds: int) -> dict[str, Any]:
    """All programs on one checkpoint, alternating so that drift hits all alike."""
    headers = header_lengths(folder)
    codes = {label: code.format(folder=str(folder), headers=headers) for label, code in PROGRAMS.items()}
    if name == "k3-neuron":
        del codes["and parse JSON (floor)"]
    samples: dict[str, list[dict[str, float]]] = {label: [] for label in codes}
    load_before = os.getloadavg()[0]
    for code in codes.values():
        sample(code)  # fills the page cache and the compiled modules
    for round_number in range(rounds):
        order = list(codes) if round_number % 2 == 0 else list(reversed(codes))
        for label in order:
            samples[label].append(sample(codes[label]))
    inventory = read_inventory(folder)
    best: dict[str, dict[str, Any]] = {}
    for label, rows in samples.items():
        best[label] = {**min(rows, key=lambda row: row["wall_s"]), "peak_bytes": peak_bytes(codes[label])}
    ceiling_s = best["read and hash (ceiling)"]["wall_s"]
    return {
        "checkpoint": name,
        "tensors": inventory.num_tensors,
        "shards": len(inventory.files),
        "tensor_bytes": inventory.tensor_bytes,
        "header_bytes": sum(length for _, length in headers),
        "load_before": round(load_before, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "best": best,
        "ratio_to_ceiling": {label: round(row["wall_s"] / ceiling_s, 2) for label, row in best.items()},
        "goal_s": GOALS_S[name],
        "goal_peak_bytes": GOAL_BYTES.get(name),
        "samples": samples,
    }


def show(row: dict[str, Any]) -> None:
    """Print one checkpoint's figures."""
    print(
        f"{row['checkpoint']}: {row['tensors']:,} tensors, {row['tensor_bytes']:,} bytes in {row['shards']} shards;"
        f" {row['header_bytes']:,} bytes of headers and index (load {row['load_before']} to {row['load_after']})"
    )
    for label, best in row["best"].items():
        memory = "—" if best["peak_bytes"] is None else f"{best['peak_bytes'] / 1e6:.1f} MB"
        ratio = f"{row['ratio_to_ceiling'][label]:.1f} x ceiling"
        print(f"  {label:<24} {best['wall_s']:>7.3f} s wall  {best['cpu_s']:>7.3f} s cpu  {memory:>9}  {ratio:>14}")
    found = row["best"]["inspect --json"]
    verdict = "met" if found["wall_s"] < row["goal_s"] else "MISSED"
    limit = row["goal_peak_bytes"]
    if limit is not None and found["peak_bytes"] is not None and found["peak_bytes"] >= limit:
        verdict = "MISSED"
    print(f"  goal: below {row['goal_s']} s" + (f" and {limit / 1e6:.0f} MB" if limit else "") + f": {verdict}")


def main() -> None:
    """Measure and print; record on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=list(GOALS_S))
    parser.add_argument("--record", action="store_true", help=f"append to {RESULTS.name}")
    options = parser.parse_args()
    made = load_made()
    writers = {
        "k3-neuron": made.write_k3_neuron,
        "200k": lambda folder: write_200k(made, folder),
        "k3-native": made.write_k3_native,
    }
    for name, write in writers.items():
        if options.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / name
            write(folder)
            row = measure(name, folder, options.rounds)
        show(row)
        if options.record:
            commit = subprocess.run(
                ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
            )
            stamp = {
                "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "command": " ".join(["python", "benchmarks/inspect_speed.py", *sys.argv[1:]]),
                "commit": commit.stdout.strip(),
                "freehold": __version__,
                "python": platform.python_version(),
                "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            }
            RESULTS.parent.mkdir(exist_ok=True)
            with RESULTS.open("a") as file:
                file.write(json.dumps({**stamp, **row}) + "\n")


if __name__ == "__main__":
    main()

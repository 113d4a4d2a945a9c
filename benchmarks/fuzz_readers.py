"""Do the header readers survive damaged and lying files: an answer or a clear error, little memory, no hanging?

Method. A corpus of valid GGUF and safetensors files is made on the spot: both byte orders, both versions, long arrays,
odd alignments, empty and scalar tensors, unusual JSON. Each mutant changes one of them by one to four steps drawn from
a seeded generator: flipped bits, overwritten bytes, extreme integers at any place, cuts, repeated and removed pieces,
grown files. Every mutant is read from memory by the reader that a user would get. It must end in a header or in a
:class:`~freehold.errors.FreeholdError`; anything else is printed with its seed and fails the run. Peak memory is traced
for each, and may not exceed a fixed multiple of the file (JSON and names become objects) plus a small constant.

For safetensors the verdict is compared with the format's own package. Stricter is allowed and counted; accepting what
the package refuses fails the run.

    python benchmarks/fuzz_readers.py [--mutants 20000] [--seed 1] [--record]

Does not do: tensor data, which the readers never touch.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import random
import re
import struct
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import safetensors

from freehold import __version__
from freehold.errors import CheckpointError, FreeholdError
from freehold.models.gguf import read_gguf
from freehold.models.safetensors import read_safetensors

RESULTS = Path(__file__).resolve().parent / "results" / "fuzz_readers.jsonl"
MEMORY_FACTOR, MEMORY_CONSTANT_BYTES = 40, 2**19
SLOW_S = 1.0
EXTREMES = [0, 1, 2, 7, 8, 31, 32, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]


def load_made() -> ModuleType:
    """The writers of valid checkpoints beside this file."""
    key = "freehold_benchmarks_made_checkpoints"
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, Path(__file__).with_name("made_checkpoints.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[key] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[key])
    return sys.modules[key]


@dataclass
class MemorySource:
    """Bytes in memory as a byte source; refuses to be asked for what it does not have."""

    data: bytes
    chunk_bytes: int = 4096
    name: str = "mutant"

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        if length < 0 or offset < 0 or offset + length > len(self.data):
            raise AssertionError(f"asked for {length} bytes at {offset} of {len(self.data)}")
        return self.data[offset : offset + length]

    def close(self) -> None:
        pass


def gguf_corpus() -> list[bytes]:
    """Valid GGUF files, small enough to flip every byte of their headers."""
    made = load_made()
    metadata = {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.attention.head_count_kv": ("u32", [1, 2, 3]),
        "llama.rope.freq_base": ("f32", 1e4),
        "tokenizer.ggml.tokens": [f"t{i}" for i in range(40)],
        "tokenizer.ggml.scores": ("f32", [0.5] * 40),
        "tokenizer.chat_template": "{{ messages }} ü",
        "tokenizer.ggml.add_bos_token": ("bool", True),
        "split.count": ("u16", 1),
    }
    tensors = [
        made.Made("token_embd.weight", (8, 64), "F16"),
        made.Made("blk.0.attn_q.weight", (4, 64), "Q8_0"),
        made.Made("blk.0.ffn_gate_exps.weight", (2, 2, 256), "IQ1_S"),
        made.Made("scalar", (), "F32"),
        made.Made("empty", (0, 32), "F32"),
        made.Made("output.weight", (2, 256), "Q4_K"),
    ]
    files = []
    for options in ({}, {"order": ">"}, {"version": 2}, {"alignment": 8}):
        extra = {"general.alignment": options["alignment"]} if "alignment" in options else {}
        header, data_bytes = made.gguf_header(tensors, metadata | extra, **options)
        alignment = options.get("alignment", 32)
        start = -(-len(header) // alignment) * alignment
        files.append(header.ljust(start, b"\0") + bytes(-(-data_bytes // alignment) * alignment))
    return files


def safetensors_corpus() -> list[bytes]:
    """Valid safetensors files, some with unusual but legal JSON."""
    made = load_made()
    names = [f"model.layers.{i}.mlp.experts.{j}.gate_proj.weight" for i in range(2) for j in range(3)]
    tensors = [made.Made(n, (3, 4), "BF16") for n in names] + [made.Made("s", (), "F32"), made.Made("e", (0,), "U8")]
    files = []
    for rows in (tensors, tensors[:1], []):
        header, data_bytes = made.safetensors_header(rows)
        files.append(header + bytes(data_bytes))
    odd = '{ "b\\u00fc" : {"shape":[2],\n"data_offsets":[4,8] ,"dtype":"F16","extra":{"x":[1.5,true,null]}},"a":' + (
        '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}   '
    )
    text = odd.encode()
    files.append(struct.pack("<Q", len(text)) + text + bytes(8))
    return files


def mutate(data: bytes, random_source: random.Random) -> bytes:
    """One mutant of a file."""
    mutant = bytearray(data)
    for _ in range(random_source.randint(1, 4)):
        if not mutant:
            break
        at = random_source.randrange(len(mutant))
        # Headers are where it hurts; half of all steps aim at the first part.
        if random_source.random() < 0.5:
            at = random_source.randrange(min(len(mutant), 600))
        step = random_source.randrange(9)
        if step == 0:
            mutant[at] ^= 1 << random_source.randrange(8)
        elif step == 1:
            mutant[at] = random_source.randrange(256)
        elif step == 2:
            value = random_source.choice(EXTREMES)
            width = random_source.choice([4, 8])
            order = random_source.choice(["little", "big"])
            mutant[at : at + width] = (value % (1 << (8 * width))).to_bytes(width, order)  # type: ignore[arg-type]
        elif step == 3:
            del mutant[at:]
        elif step == 4:
            del mutant[at : at + random_source.randint(1, 40)]
        elif step == 5:
            piece = mutant[at : at + random_source.randint(1, 200)]
            mutant[at:at] = piece
        elif step == 6:
            mutant += bytes(random_source.randint(1, 500))
        elif step == 7:
            digits = [i for i, byte in enumerate(mutant[:1000]) if 48 <= byte <= 57]
            if digits:
                place = random_source.choice(digits)
                mutant[place : place + 1] = random_source.choice(
                    [b"9", b"0", b"-1", b"1.0", b"9" * 30, b"null", b"true"]
                )
        else:
            mutant[at : at + 8] = random_source.choice([b"\xff" * 8, b'{"a":[{}]', b"\0" * 8, b"[" * 8, b"\\ud800x"])
    return bytes(mutant)


def mutate_json(data: bytes, random_source: random.Random) -> bytes:
    """A mutant of a safetensors file whose length field is right again, so that what it holds is looked at."""
    length = int.from_bytes(data[:8], "little")
    text, tail = data[8 : 8 + length], data[8 + length :]
    if random_source.random() < 0.5:
        text = mutate(text, random_source)
    else:
        document = json.loads(text)
        entries = [entry for name, entry in document.items() if name != "__metadata__"]
        for entry in random_source.sample(entries, min(len(entries), random_source.randint(1, 2))):
            value = random_source.choice([*EXTREMES, -1, 1.0, 0.5, None, True, "1", [], {}, 10**40])
            match random_source.randrange(6):
                case 0:
                    entry["dtype"] = random_source.choice(["F32", "BF16", "U8", "F4", "F8_E4M3", "X", value])
                case 1:
                    entry["shape"].insert(0, value)
                case 2 if entry["shape"]:
                    entry["shape"][random_source.randrange(len(entry["shape"]))] = value
                case 3:
                    entry["data_offsets"][random_source.randrange(2)] = value
                case 4:
                    entry[random_source.choice(["dtype", "shape", "data_offsets", "extra"])] = value
                case _:
                    shift = random_source.choice([-4, -1, 1, 4])
                    entry["data_offsets"] = [number + shift for number in entry["data_offsets"]]
        text = json.dumps(document).encode()
    return struct.pack("<Q", len(text)) + text + tail


@dataclass
class Outcome:
    """How one mutant ended: ``read``, the kind of error, or what must never happen."""

    label: str
    is_accepted: bool
    peak_bytes: int
    took_s: float
    problem: str | None = None


def attempt(read: Callable[[MemorySource], object], data: bytes) -> Outcome:
    """Read a mutant and judge how that ended."""
    tracemalloc.clear_traces()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    begun = time.perf_counter()
    problem, is_accepted = None, False
    try:
        read(MemorySource(data))
        label, is_accepted = "read", True
    except CheckpointError as error:
        label = re.sub(r"\b(tensors?|key) \S+( and \S+)?(?= in| are| is|$)", r"\1 T", error.what)
        label = re.sub(
            r"(?<![\w-])[0-9][0-9,]*", "N", re.sub(r"(unknown type|: mutant|contradicts itself:) .*", r"\1 …", label)
        )
        if not (error.what and error.why and error.fix):
            problem = f"an error without its three parts: {error.what}"
    except FreeholdError as error:
        label, problem = type(error).__name__, f"{type(error).__name__} for a broken file: {error.what}"
    except Exception as error:  # noqa: BLE001 - that nothing else escapes is what is measured
        label, problem = f"ESCAPED {type(error).__name__}", f"{type(error).__name__}: {error}"
    took_s = time.perf_counter() - begun
    peak_bytes = tracemalloc.get_traced_memory()[1] - before
    if peak_bytes > MEMORY_FACTOR * len(data) + MEMORY_CONSTANT_BYTES:
        problem = problem or f"{peak_bytes:,} bytes of memory for a file of {len(data):,}"
    if took_s > SLOW_S:
        problem = problem or f"{took_s:.1f} s for a file of {len(data):,} bytes"
    return Outcome(label, is_accepted, peak_bytes, took_s, problem)


def package_accepts(data: bytes) -> bool:
    """Whether the safetensors package reads a file."""
    try:
        safetensors.deserialize(data)
    except (safetensors.SafetensorError, ValueError, OverflowError):
        return False
    return True


def run(
    name: str, read: Callable[[MemorySource], object], corpus: Sequence[bytes], mutants: int, seed: int
) -> tuple[dict[str, object], list[str]]:
    """Fuzz one reader; returns the figures and every problem."""
    outcomes: Counter[str] = Counter()
    comparison: Counter[str] = Counter()
    problems: list[str] = []
    worst_ratio = slowest_s = 0.0
    tracemalloc.start()
    for position, data in enumerate(corpus):
        if not attempt(read, data).is_accepted:
            problems.append(f"{name}: corpus file {position} is refused")
    for number in range(mutants):
        generator = random.Random(f"{name}/{seed}/{number}")
        is_json = name == "safetensors" and generator.random() < 0.7
        data = (mutate_json if is_json else mutate)(generator.choice(corpus), generator)
        outcome = attempt(read, data)
        outcomes[outcome.label] += 1
        worst_ratio = max(worst_ratio, (outcome.peak_bytes - MEMORY_CONSTANT_BYTES) / max(1, len(data)))
        slowest_s = max(slowest_s, outcome.took_s)
        if outcome.problem is not None:
            problems.append(f"{name} seed {seed} mutant {number}: {outcome.problem}")
        if name == "safetensors":
            theirs = package_accepts(data)
            key = {
                (True, True): "both read it",
                (False, False): "both refuse it",
                (False, True): "stricter than the package",
                (True, False): "LAXER than the package",
            }[outcome.is_accepted, theirs]
            comparison[key] += 1
            if key.startswith("LAXER"):
                problems.append(f"{name} seed {seed} mutant {number}: read although the package refuses it")
    tracemalloc.stop()
    figures: dict[str, object] = {
        "reader": name,
        "mutants": mutants,
        "seed": seed,
        "outcomes": dict(outcomes.most_common()),
        "slowest_s": round(slowest_s, 4),
        "worst_bytes_per_file_byte_beyond_constant": round(worst_ratio, 2),
        "num_problems": len(problems),
    }
    if comparison:
        figures["against_package"] = dict(comparison.most_common())
    return figures, problems


READERS: dict[str, tuple[Callable[[MemorySource], object], Callable[[], list[bytes]]]] = {
    "gguf": (read_gguf, gguf_corpus),
    "safetensors": (read_safetensors, safetensors_corpus),
}


def main() -> int:
    """Fuzz both readers and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--mutants", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true", help=f"append to {RESULTS.name}")
    options = parser.parse_args()
    failed = False
    for name, (read, corpus) in READERS.items():
        begun = time.perf_counter()
        figures, problems = run(name, read, corpus(), options.mutants, options.seed)
        print(f"{name}: {options.mutants:,} mutants in {time.perf_counter() - begun:.1f} s")
        for label, count in figures["outcomes"].items():  # type: ignore[attr-defined]
            print(f"  {count:>7,}  {label}")
        for label, count in figures.get("against_package", {}).items():  # type: ignore[attr-defined]
            print(f"  {count:>7,}  {label}")
        print(f"  slowest {figures['slowest_s']} s · {len(problems)} problems")
        for problem in problems[:20]:
            print(f"  PROBLEM {problem}")
        failed |= bool(problems)
        if options.record:
            commit = subprocess.run(
                ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
            )
            row = {
                "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "command": " ".join(["python", "benchmarks/fuzz_readers.py", *sys.argv[1:]]),
                "commit": commit.stdout.strip(),
                "freehold": __version__,
                "python": platform.python_version(),
                **figures,
            }
            RESULTS.parent.mkdir(exist_ok=True)
            with RESULTS.open("a") as file:
                file.write(json.dumps(row) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Reads the benchmark's raw samples, one JSON object a line, as far as a report draws and lists them.

Read :func:`read_samples`. A value that a row does not have stays None; it is never filled in.

Does not do: statistics (``bench/``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from freehold.errors import InputError
from freehold.records.base import sha256_hex

__all__ = ["Sample", "Samples", "read_samples"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One request.

    Args:
        prompt_class: ``code``, ``prose`` …
        concurrency: Streams in flight.
        index: Position within its arm, in the order of the file, from 0; warm-up requests count.
        is_warmup: Whether it was dropped as warm-up.
        error: Why it failed; empty when it did not.
        ttft_s: Request sent until the first non-empty output token.
        tpot_s: Time per output token after the first.
        e2e_s: Request sent until the last token.
        decode_tok_per_s: What one user sees.
        output_tokens: By the server's usage field.
    """

    prompt_class: str
    concurrency: int
    index: int
    is_warmup: bool = False
    error: str = ""
    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    decode_tok_per_s: float | None = None
    output_tokens: int | None = None

    @property
    def is_counted(self) -> bool:
        """Whether it is in the figures."""
        return not self.is_warmup and not self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The rows, the hash of each file they came from, and why there are none."""

    rows: tuple[Sample, ...] = ()
    missing: str = ""
    sha256_by_file: Mapping[str, str] = field(default_factory=dict)


def read_samples(folder: Path, expected: Mapping[str, str]) -> Samples:
    """Read the raw samples that a benchmark record names.

    Args:
        folder: The run's ``samples`` folder.
        expected: sha256 by base name, as the record states it.

    Returns:
        The rows in order; without any, the reason.

    Raises:
        InputError: A line is no JSON object, or lacks its prompt class or concurrency. A last line without its
            newline was being written when the run ended and is left out.
    """
    rows: list[Sample] = []
    hashes: dict[str, str] = {}
    absent = []
    for name in expected:
        path = folder / Path(name).name
        if not path.is_file():
            absent.append(path.name)
            continue
        data = path.read_bytes()
        hashes[path.name] = sha256_hex(data)
        lines = data.split(b"\n")[:-1]
        counts: dict[tuple[str, int], int] = {}
        seen: set[object] = set()
        for number, line in enumerate(lines, start=1):
            where = f"{path}, line {number}"
            row = _parse(line, where=where)
            # A request is written twice when an interruption strikes between writing it and noting that.
            if row.get("index", number) not in seen:
                seen.add(row.get("index", number))
                rows.append(_read_row(row, counts))
    missing = ""
    if not rows:
        missing = f"samples/{absent[0]} is not in the run folder" if absent else "the benchmark kept no raw samples"
    return Samples(rows=tuple(rows), missing=missing, sha256_by_file=hashes)


def _parse(line: bytes, *, where: str) -> dict[str, Any]:
    try:
        row: dict[str, Any] = json.loads(line)
        if not isinstance(row["prompt_class"], str) or not isinstance(row["concurrency"], int):
            raise TypeError("prompt_class is no text, or concurrency no whole number")
        hash(row.get("index"))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{where} is no raw sample",
            why=f"{type(error).__name__}: {error}",
            fix="samples are not edited by hand; run `freehold bench` on the run folder again",
        ) from None
    return row


def _read_row(row: dict[str, Any], counts: dict[tuple[str, int], int]) -> Sample:
    arm = (row["prompt_class"], row["concurrency"])
    index = counts.get(arm, 0)
    counts[arm] = index + 1
    return Sample(
        prompt_class=arm[0],
        concurrency=arm[1],
        index=index,
        is_warmup=row.get("is_warmup") is True,
        error=str(row.get("error") or ""),
        ttft_s=_number(row, "ttft_s"),
        tpot_s=_number(row, "tpot_s"),
        e2e_s=_number(row, "e2e_s"),
        decode_tok_per_s=_number(row, "decode_tok_per_s"),
        output_tokens=_whole(row, "output_tokens"),
    )


def _number(row: dict[str, Any], key: str) -> float | None:
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number beyond any float
        return None


def _whole(row: dict[str, Any], key: str) -> int | None:
    value = row.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None

"""The raw truth of a benchmark on disk: one JSON line per request, written the moment it is finished.

A line holds the figures of the request and, beside them, every arrival and every piece of text, so that all figures
can be made again from the file, the same to the last bit. Read :func:`encode_sample`, then :func:`read_samples`.

Does not do: arms and intervals (``bench/summary.py``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from freehold.bench.metrics import RequestMetrics, measure_request
from freehold.client.api import StreamEvent, StreamTrace, Usage
from freehold.client.stream import INTERRUPTED
from freehold.errors import InputError, PrerequisiteError

__all__ = [
    "EncodedSample",
    "Sample",
    "SampleFile",
    "SampleKey",
    "decode_sample",
    "decode_trace",
    "encode_sample",
    "read_samples",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleKey:
    """Which request it was.

    Args:
        index: Position among all requests of the benchmark, in the order they were planned.
        prompt_class: Class of its prompt.
        concurrency: Streams in flight.
        block: Which stretch of its arm: requests of one block ran together.
        is_warmup: Whether it is dropped.
        prompt: Which text.
        nonce: The random beginning that made it unique.
        requested_tokens: Output length that was asked for.
    """

    index: int
    prompt_class: str
    concurrency: int
    block: int
    is_warmup: bool
    prompt: str
    nonce: str
    requested_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One request: which, when, and what it means. Its events stay on disk.

    Args:
        key: Which request.
        metrics: Its figures.
        sent_at_s: When it was sent, on the clock of the arrivals.
        ended_at_s: Arrival of the last byte.
        stamp: How arrivals were stamped.
        read_lag_s: The longest an arrival waited to be read.
        is_interrupted: Whether Ctrl-C ended it.
    """

    key: SampleKey
    metrics: RequestMetrics
    sent_at_s: float
    ended_at_s: float
    stamp: str
    read_lag_s: float
    is_interrupted: bool

    @property
    def is_counted(self) -> bool:
        """Whether it belongs to the figures: neither warm-up nor ended by an interruption."""
        return not self.key.is_warmup and not self.is_interrupted

    @property
    def is_good(self) -> bool:
        """Whether it is counted and has figures."""
        return self.is_counted and self.metrics.error is None


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedSample:
    """A request and the line that holds it, newline included."""

    sample: Sample
    line: bytes


def encode_sample(key: SampleKey, trace: StreamTrace) -> EncodedSample:
    """Measure a request and write it down.

    Arrivals are nanoseconds after ``sent_at_s``; columns that are empty for all events are left out. A trace whose
    arrivals do not survive that way of writing is measured as it will be read.
    """
    raw = _encode_trace(trace)
    if any(_arrival_s(trace.sent_at_s, n) != e.at_s for n, e in zip(raw["at_ns"], trace.events, strict=True)):
        trace = _decode_trace(raw)
    sample = _sample(key, trace)
    metrics = sample.metrics
    row: dict[str, object] = {
        "index": key.index,
        "prompt_class": key.prompt_class,
        "concurrency": key.concurrency,
        "block": key.block,
        "is_warmup": key.is_warmup,
        "prompt": key.prompt,
        "nonce": key.nonce,
        "requested_tokens": key.requested_tokens,
        "error": metrics.error,
        "ttft_s": metrics.ttft_s,
        "first_answer_s": metrics.first_answer_s,
        "tpot_s": metrics.tpot_s,
        "e2e_s": metrics.e2e_s,
        "decode_tok_per_s": metrics.decode_tok_per_s,
        "output_tokens": metrics.output_tokens,
        "counted_by": metrics.counted_by,
        "prompt_tokens": metrics.prompt_tokens,
        "flags": [flag.text for flag in metrics.flags],
        "trace": raw,
    }
    text = json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return EncodedSample(sample=sample, line=text.encode("utf-8", "surrogatepass") + b"\n")


def _sample(key: SampleKey, trace: StreamTrace) -> Sample:
    return Sample(
        key=key,
        metrics=measure_request(trace, key.requested_tokens),
        sent_at_s=trace.sent_at_s,
        ended_at_s=trace.ended_at_s,
        stamp=trace.stamp,
        read_lag_s=trace.read_lag_s,
        is_interrupted=(trace.error or "").startswith(INTERRUPTED),
    )


def decode_trace(line: bytes) -> StreamTrace:
    """The raw part of a line.

    Raises:
        ValueError: It is no line of a samples file.
    """
    return _decode_line(line)[1]


def decode_sample(line: bytes) -> Sample:
    """Read a line; its figures are made anew from its raw part.

    Raises:
        ValueError: It is no line of a samples file.
    """
    key, trace = _decode_line(line)
    try:
        return _sample(key, trace)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _decode_line(line: bytes) -> tuple[SampleKey, StreamTrace]:
    try:
        row = json.loads(line.decode("utf-8", "surrogatepass"))
        key = SampleKey(
            index=int(row["index"]),
            prompt_class=str(row["prompt_class"]),
            concurrency=int(row["concurrency"]),
            block=int(row["block"]),
            is_warmup=row["is_warmup"] is True,
            prompt=str(row["prompt"]),
            nonce=str(row["nonce"]),
            requested_tokens=int(row["requested_tokens"]),
        )
        return key, _decode_trace(row["trace"])
    except (KeyError, TypeError, AttributeError, RecursionError, OverflowError, IndexError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def read_samples(path: Path) -> tuple[Sample, ...]:
    """All samples of a file, in the order they were finished.

    A last line without its newline was being written when the process ended and is left out; a request that was
    written twice (Ctrl-C struck between writing it and noting that) counts once.

    Raises:
        InputError: The file cannot be read, or a line is no sample.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path} cannot be read", why=error.strerror or str(error), fix="run `freehold bench` again"
        ) from None
    samples: dict[int, Sample] = {}
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            sample = decode_sample(line)
        except ValueError as error:
            raise InputError(
                f"{path}, line {number} is no sample",
                why=str(error),
                fix="samples are not edited by hand; run `freehold bench` again",
            ) from None
        samples.setdefault(sample.key.index, sample)
    return tuple(samples.values())


class SampleFile:
    """A samples file being written; an existing one is never touched, a free name beside it is taken.

    Args:
        path: Where it should be.

    Raises:
        PrerequisiteError: It cannot be made.
    """

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot_write(path, error) from None
        number = 1
        while True:
            candidate = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
            try:
                self._descriptor = os.open(candidate, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
                break
            except FileExistsError:
                number += 1
            except OSError as error:
                raise _cannot_write(candidate, error) from None
        self.path = candidate
        self._size = 0
        self.samples: dict[int, Sample] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        os.close(self._descriptor)

    def add(self, key: SampleKey, trace: StreamTrace) -> Sample:
        """Write a request; a second time with the same index changes nothing.

        Raises:
            PrerequisiteError: The disk is full; the file then ends with the last whole line.
        """
        if key.index in self.samples:
            return self.samples[key.index]
        encoded = encode_sample(key, trace)
        line = encoded.line
        try:
            written = os.write(self._descriptor, line)
            if written != len(line):
                raise OSError(28, "No space left on device")
        except OSError as error:
            os.ftruncate(self._descriptor, self._size)
            raise _cannot_write(self.path, error) from None
        self._size += written
        self.samples[key.index] = encoded.sample
        return encoded.sample


def _cannot_write(path: Path, error: OSError) -> PrerequisiteError:
    return PrerequisiteError(
        f"cannot write {path}",
        why=error.strerror or str(error),
        fix="free some space, or choose a folder you may write with `--run-dir`",
    )


_DEFAULTS: Final[Mapping[str, object]] = {
    "text": "",
    "reasoning": "",
    "tool_call": "",
    "token_ids": [],
    "num_logprobs": 0,
    "stated_tokens": None,
    "finish_reason": None,
    "has_usage": False,
}
"""What an event has in a column that is left out."""


def _arrival_s(sent_at_s: float, offset_ns: int) -> float:
    return sent_at_s + offset_ns * 1e-9


def _encode_trace(trace: StreamTrace) -> dict[str, Any]:
    events = trace.events
    columns: dict[str, list[object]] = {
        "text": [event.text for event in events],
        "reasoning": [event.reasoning for event in events],
        "tool_call": [event.tool_call for event in events],
        "token_ids": [list(event.token_ids) for event in events],
        "num_logprobs": [event.num_logprobs for event in events],
        "stated_tokens": [event.stated_tokens for event in events],
        "finish_reason": [event.finish_reason for event in events],
        "has_usage": [event.has_usage for event in events],
    }
    return {
        "sent_at_s": trace.sent_at_s,
        "ended_at_s": trace.ended_at_s,
        "status": trace.status,
        "is_complete": trace.is_complete,
        "error": trace.error,
        "stamp": trace.stamp,
        "clock_step_s": trace.clock_step_s,
        "read_lag_s": trace.read_lag_s,
        "connect_s": trace.connect_s,
        "notes": list(trace.notes),
        "usage": [trace.usage.prompt_tokens, trace.usage.completion_tokens, trace.usage.cached_tokens],
        "timings": dict(trace.timings),
        "at_ns": [round((event.at_s - trace.sent_at_s) * 1e9) for event in events],
        **{name: values for name, values in columns.items() if values.count(_DEFAULTS[name]) < len(values)},
    }


def _decode_trace(raw: Mapping[str, Any]) -> StreamTrace:
    sent_at_s = float(raw["sent_at_s"])
    count = len(raw["at_ns"])

    def column(name: str) -> list[Any]:
        values = raw.get(name, [_DEFAULTS[name]] * count)
        if len(values) != count:
            raise TypeError(f"{name} holds {len(values)} values for {count} events")
        return list(values)

    texts, reasonings, tool_calls = column("text"), column("reasoning"), column("tool_call")
    token_ids, num_logprobs, stated_tokens = column("token_ids"), column("num_logprobs"), column("stated_tokens")
    finish_reasons, has_usage = column("finish_reason"), column("has_usage")
    prompt, completion, cached = raw["usage"]
    return StreamTrace(
        sent_at_s=sent_at_s,
        ended_at_s=float(raw["ended_at_s"]),
        status=int(raw["status"]),
        events=tuple(
            StreamEvent(
                at_s=_arrival_s(sent_at_s, at_ns),
                text=texts[i],
                reasoning=reasonings[i],
                tool_call=tool_calls[i],
                token_ids=tuple(token_ids[i]),
                num_logprobs=num_logprobs[i],
                stated_tokens=stated_tokens[i],
                finish_reason=finish_reasons[i],
                has_usage=has_usage[i],
            )
            for i, at_ns in enumerate(raw["at_ns"])
        ),
        usage=Usage(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached),
        timings=raw["timings"],
        is_complete=raw["is_complete"] is True,
        error=raw["error"],
        stamp=raw["stamp"],
        clock_step_s=raw["clock_step_s"],
        read_lag_s=raw["read_lag_s"],
        connect_s=raw["connect_s"],
        notes=tuple(raw["notes"]),
    )

from __future__ import annotations

import json
import resource
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.bench.samples import SampleFile, SampleKey, decode_sample, decode_trace, encode_sample, read_samples
from freehold.client.api import StreamEvent, StreamTrace, Usage
from freehold.errors import InputError, PrerequisiteError

KEY = SampleKey(
    index=0,
    prompt_class="code",
    concurrency=1,
    block=0,
    is_warmup=False,
    prompt="code-01",
    nonce="abc",
    requested_tokens=8,
)


def trace(**more: object) -> StreamTrace:
    fields: dict[str, object] = {
        "sent_at_s": 1_796_000_000.25,
        "ended_at_s": 1_796_000_001.5,
        "status": 200,
        "events": tuple(StreamEvent(at_s=1_796_000_000.5 + i / 8, text=f" w{i}") for i in range(8)),
        "usage": Usage(prompt_tokens=30, completion_tokens=8),
        "is_complete": True,
        "stamp": "kernel",
    }
    return StreamTrace(**(fields | more))  # type: ignore[arg-type]


counts = st.none() | st.integers(min_value=0, max_value=10**6)
texts = st.text(max_size=4)
events = st.builds(
    StreamEvent,
    at_s=st.integers(min_value=0, max_value=10**7).map(lambda n: 1_796_000_000.25 + n / 2**20),
    text=texts,
    reasoning=texts,
    tool_call=texts,
    token_ids=st.lists(st.integers(0, 200_000), max_size=3).map(tuple),
    num_logprobs=st.integers(0, 3),
    stated_tokens=counts,
    finish_reason=st.none() | st.sampled_from(["stop", "length"]),
    has_usage=st.booleans(),
)
traces = st.builds(
    StreamTrace,
    sent_at_s=st.just(1_796_000_000.25),
    ended_at_s=st.just(1_796_000_009.0),
    status=st.sampled_from([0, 200, 500]),
    events=st.lists(events, max_size=6).map(tuple),
    usage=st.builds(Usage, prompt_tokens=counts, completion_tokens=counts, cached_tokens=counts),
    timings=st.dictionaries(texts, st.floats(allow_nan=False, allow_infinity=False), max_size=2),
    is_complete=st.booleans(),
    error=st.none() | texts,
    stamp=st.sampled_from(["kernel", "user"]),
    clock_step_s=st.just(0.0),
    read_lag_s=st.floats(0, 1),
    connect_s=st.none() | st.floats(0, 1),
    notes=st.lists(texts, max_size=2).map(tuple),
)


@given(trace=traces)
def test_a_line_holds_the_whole_trace(trace: StreamTrace) -> None:
    encoded = encode_sample(KEY, trace)
    assert encoded.line.count(b"\n") == 1
    assert encoded.line.endswith(b"\n")
    # What is measured now is what will be read, to the last bit.
    assert decode_sample(encoded.line) == encoded.sample
    got = decode_trace(encoded.line)
    assert replace(got, events=(), timings=dict(got.timings)) == replace(trace, events=())
    for ours, theirs in zip(got.events, trace.events, strict=True):
        assert replace(ours, at_s=0.0) == replace(theirs, at_s=0.0)
        assert ours.at_s == pytest.approx(theirs.at_s, abs=1e-6)


def test_a_line_shows_its_figures_to_other_readers() -> None:
    row = json.loads(encode_sample(KEY, trace()).line)
    assert (row["prompt_class"], row["concurrency"], row["is_warmup"], row["error"]) == ("code", 1, False, None)
    assert row["ttft_s"] == pytest.approx(0.25)
    assert row["tpot_s"] == pytest.approx(0.125)
    assert row["e2e_s"] == pytest.approx(1.125)
    assert row["decode_tok_per_s"] == pytest.approx(8)
    assert row["output_tokens"] == 8
    assert row["trace"]["at_ns"][0] == 250_000_000
    assert "reasoning" not in row["trace"]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    with SampleFile(tmp_path / "new" / "bench.jsonl") as file:
        for i in (2, 0, 1):
            file.add(replace(KEY, index=i), trace())
        written = tuple(file.samples.values())
    assert read_samples(file.path) == written
    assert [s.key.index for s in written] == [2, 0, 1]


def test_a_request_that_is_added_twice_counts_once(tmp_path: Path) -> None:
    with SampleFile(tmp_path / "bench.jsonl") as file:
        first = file.add(KEY, trace())
        assert file.add(KEY, trace(status=500)) is first
    file.path.write_bytes(file.path.read_bytes() * 2)
    assert read_samples(file.path) == (first,)


def test_an_older_file_stays(tmp_path: Path) -> None:
    (tmp_path / "bench.jsonl").write_text("old")
    (tmp_path / "bench-2.jsonl").write_text("older")
    with SampleFile(tmp_path / "bench.jsonl") as file:
        assert file.path.name == "bench-3.jsonl"
    assert (tmp_path / "bench.jsonl").read_text() == "old"


def test_a_line_that_was_being_written_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "bench.jsonl"
    line = encode_sample(KEY, trace()).line
    path.write_bytes(line + encode_sample(replace(KEY, index=1), trace()).line[:-20])
    assert [s.key.index for s in read_samples(path)] == [0]


@pytest.mark.parametrize(
    "line",
    [b"{", b"[]", b"null", b"{}", b'{"index": 1}', b"\xff\xfe", b"[" * 50_000, b'{"index": 1e400}'],
)
def test_what_is_no_sample_is_named_with_its_line(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "bench.jsonl"
    path.write_bytes(encode_sample(KEY, trace()).line + line + b"\n")
    with pytest.raises(InputError, match="line 2 is no sample"):
        read_samples(path)


def test_columns_of_different_length_are_refused(tmp_path: Path) -> None:
    row = json.loads(encode_sample(KEY, trace()).line)
    row["trace"]["text"].pop()
    path = tmp_path / "bench.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(InputError, match="line 1 is no sample") as caught:
        read_samples(path)
    assert "text holds 7 values for 8 events" in caught.value.why


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_samples(tmp_path / "none.jsonl")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PrerequisiteError, match="cannot write"):
        SampleFile(tmp_path / "file" / "bench.jsonl")


def test_a_full_disk_keeps_whole_lines(tmp_path: Path) -> None:
    line = encode_sample(KEY, trace()).line
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with SampleFile(tmp_path / "bench.jsonl") as file:
        file.add(KEY, trace())
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(line) + 100, hard))
        try:
            with pytest.raises(PrerequisiteError, match="cannot write"):
                file.add(replace(KEY, index=1), trace())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.path.read_bytes() == line

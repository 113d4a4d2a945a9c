"""Every record type: there and back unchanged, strict about what it does not know, readable for ever."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freehold.errors import InputError
from freehold.evidence import Evidence, Interval, Kind
from freehold.records.base import decode, encode, schema_name, sha256_hex
from freehold.records.verdict import Outcome, Verdict, overall

REPOSITORY = Path(__file__).resolve().parents[2]
FIXTURES = REPOSITORY / "tests" / "data" / "records"
RELEASED = tomllib.loads((FIXTURES / "released.toml").read_text())


def _load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", REPOSITORY / "tools" / "generate_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = _load_generator()
RECORD_TYPES: dict[str, type[Any]] = GENERATOR.record_types()

FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(max_size=12)
VALUES = st.one_of(st.booleans(), st.integers(), FINITE, TEXT)


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    low, high = sorted([draw(FINITE), draw(FINITE)])
    level = draw(st.floats(0.01, 0.99))
    return Interval(low=low, high=high, level=level, method=draw(TEXT))


@st.composite
def evidence(draw: st.DrawFn, depth: int = 1) -> Evidence:
    kind = draw(st.sampled_from(list(Kind)))
    if kind is Kind.NOT_MEASURED:
        return Evidence.not_measured(draw(st.text(min_size=1, max_size=12)), draw(TEXT))
    inputs: dict[str, Evidence] = {}
    if kind is Kind.CALCULATED and depth:
        parts = evidence(depth=depth - 1).filter(lambda part: not part.is_missing)
        inputs = draw(st.dictionaries(TEXT, parts, max_size=2))
    return Evidence(
        value=draw(VALUES),
        kind=kind,
        unit=draw(TEXT),
        source=draw(st.text(min_size=1, max_size=12)),
        date=draw(st.none() | TEXT),
        n=draw(st.none() | st.integers(1, 10**6)),
        interval=draw(st.none() | intervals()),
        inputs=inputs,
    )


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a field's type, with finite numbers and evidence that is allowed to exist."""
    if kind is Evidence:
        return evidence()
    if kind is float:
        return FINITE
    if kind is str:
        return TEXT
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return st.builds(kind, **{f.name: values_of(hints[f.name]) for f in dataclasses.fields(kind)})
    origin, arguments = getattr(kind, "__origin__", None), getattr(kind, "__args__", ())
    if origin in (Mapping, dict):
        return st.dictionaries(TEXT, values_of(arguments[1]), max_size=2)
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=2).map(tuple)
    if origin is None and arguments:
        return st.one_of([values_of(a) for a in arguments])
    return st.from_type(kind)


@cache
def validator_of(record_type: type[Any]) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(GENERATOR.make_json_schema(record_type)))


def test_there_are_records_of_every_stage() -> None:
    stages = {"inventory", "plan", "preflight", "deployment", "verification", "bench", "journey", "node"}
    assert {re.fullmatch(r"freehold\.(\w+)/\d+", schema)[1] for schema in RECORD_TYPES} >= stages  # type: ignore[index]


@pytest.mark.parametrize("schema", RECORD_TYPES)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_a_record_comes_back_unchanged_and_fits_its_schema(schema: str, data: st.DataObject) -> None:
    record_type = RECORD_TYPES[schema]
    value = data.draw(values_of(record_type))
    encoded = encode(value)
    again = decode(record_type, encoded)
    assert again == value
    assert encode(again) == encoded, "the same record always gives the same bytes"
    assert schema_name(record_type) == schema == json.loads(encoded)["schema"]
    validator_of(record_type).validate(json.loads(encoded))


@pytest.mark.parametrize("schema", RECORD_TYPES)
def test_a_record_is_frozen_and_keyword_only(schema: str) -> None:
    record_type = RECORD_TYPES[schema]
    parameters = record_type.__dataclass_params__
    assert parameters.frozen
    assert all(f.kw_only for f in dataclasses.fields(record_type))
    assert dataclasses.fields(record_type)[0].name == "schema", "the first field names the schema"
    assert not hasattr(record_type, "__dict__") or "__slots__" in vars(record_type)


def fixture_of(schema: str) -> Path:
    return FIXTURES / str(GENERATOR.schema_file_name(schema))


@pytest.mark.parametrize("schema", RELEASED)
def test_a_released_record_is_still_read(schema: str) -> None:
    path = fixture_of(schema)
    assert path.is_file(), f"{schema} was released and has no fixture {path.name}"
    assert schema in RECORD_TYPES, f"{schema} was released and nothing reads it any more"
    value = decode(RECORD_TYPES[schema], path.read_bytes(), name=path.name)
    assert json.loads(encode(value)) == json.loads(path.read_bytes()), "reading and writing it keeps everything"


def test_every_schema_is_locked_and_every_fixture_is_of_one() -> None:
    assert set(RELEASED) == set(RECORD_TYPES), "run `python tools/generate_docs.py --lock`"
    assert {p.name for p in FIXTURES.glob("*.json")} == {fixture_of(schema).name for schema in RELEASED}


@pytest.mark.parametrize("schema", RELEASED)
def test_a_released_schema_has_not_changed(schema: str) -> None:
    assert GENERATOR.schema_fingerprint(RECORD_TYPES[schema]) == RELEASED[schema]["sha256"], (
        f"{schema} was released with another form: give the new one a new version, and keep reading the old one"
    )


def sample() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(fixture_of("freehold.preflight/1").read_bytes())
    return document


def refuse(document: object) -> InputError:
    with pytest.raises(InputError) as caught:
        decode(RECORD_TYPES["freehold.preflight/1"], json.dumps(document).encode(), name="preflight.json")
    return caught.value


def test_an_unknown_field_is_refused_wherever_it_is() -> None:
    assert "extra: " in refuse({**sample(), "extra": 1}).why
    inner = sample()
    inner["verdicts"][0]["extra"] = 1
    assert "verdicts.0.extra: " in refuse(inner).why


def test_a_missing_field_is_refused_and_named() -> None:
    document = sample()
    del document["outcome"]
    assert "outcome: " in refuse(document).why


def test_a_value_of_the_wrong_type_is_refused() -> None:
    assert "outcome: " in refuse({**sample(), "outcome": "maybe"}).why


@pytest.mark.parametrize("found", [None, "freehold.preflight/2", "freehold.plan/1", 7])
def test_another_schema_is_refused_and_both_are_named(found: object) -> None:
    error = refuse({**sample(), "schema": found})
    assert repr(found) in error.what
    assert "'freehold.preflight/1'" in error.what


@pytest.mark.parametrize("document", [[], "text", 3, None])
def test_what_is_no_object_is_refused(document: object) -> None:
    assert refuse(document).exit_code == 2


@given(st.binary(max_size=64) | st.sampled_from([b"[" * 100_000, b"9" * 5000, b'{"schema": NaN}', b"\xff\xfe"]))
def test_any_bytes_are_a_record_or_an_input_error(data: bytes) -> None:
    with pytest.raises(InputError):
        decode(RECORD_TYPES["freehold.preflight/1"], data)


def test_evidence_that_contradicts_itself_is_refused_on_the_way_in() -> None:
    document = sample()
    document["verdicts"][0]["evidence"] = {
        "x": {"value": 1.0, "kind": "not_measured", "reason": "nobody looked"},
    }
    assert "verdicts.0.evidence.x" in refuse(document).why


def test_a_number_json_does_not_have_is_not_written() -> None:
    bench = RECORD_TYPES["freehold.bench/1"]
    whole = decode(bench, fixture_of("freehold.bench/1").read_bytes())
    with pytest.raises(ValueError, match="JSON"):
        encode(dataclasses.replace(whole, wall_s=float("nan")))


def test_a_hash_is_of_the_bytes() -> None:
    # The well-known digest of the empty string.
    assert sha256_hex(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@given(st.lists(st.sampled_from(list(Outcome))))
def test_the_worst_outcome_decides(outcomes: list[Outcome]) -> None:
    result = overall(Verdict(check="c", outcome=o, observation="") for o in outcomes)
    order = [Outcome.PASS, Outcome.WARN, Outcome.INCONCLUSIVE, Outcome.FAIL]
    expected = order[max((order.index(o) for o in outcomes), default=2)]
    assert result is expected


def test_no_checks_are_no_pass() -> None:
    assert overall([]) is Outcome.INCONCLUSIVE


def test_half_of_a_surrogate_pair_is_spelled_out() -> None:
    bench = RECORD_TYPES["freehold.bench/1"]
    whole = decode(bench, fixture_of("freehold.bench/1").read_bytes())
    data = encode(dataclasses.replace(whole, command="a\udcff\ud800 ü"))
    assert decode(bench, data).command == r"a\udcff\ud800 ü"

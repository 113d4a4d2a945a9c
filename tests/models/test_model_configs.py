"""Facts and names that others published: real configurations and the real parameter names of other people's code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from freehold.models.architecture import Facts, read_config_facts
from freehold.models.roles import assign_roles

DATA = Path(__file__).resolve().parents[1] / "data" / "models"


def facts_of(name: str) -> Facts:
    return read_config_facts({"config.json": (DATA / "configs" / f"{name}.json").read_bytes()}, [])


# Layers, hidden size, heads, key/value heads, head width, value width, MLA latent, rotary width,
# experts, per token, shared, expert width, dense width, context, window, vocabulary.
PUBLISHED: dict[str, tuple[Any, ...]] = {
    "moonshotai--Kimi-K3": (93, 7168, 96, 96, 192, 128, 512, 64, 896, 16, 2, 3072, 33792, 1048576, None, 163840),
    "deepseek-ai--DeepSeek-V3": (61, 7168, 128, 128, 192, 128, 512, 64, 256, 8, 1, 2048, 18432, 163840, None, 129280),
    "deepseek-ai--DeepSeek-V4-Flash": (
        *(43, 4096, 64, 1, 512, None, None, None, 256, 6, 1, 2048, None, 1048576, 128, 129280),
    ),
    "openai--gpt-oss-20b": (24, 2880, 64, 8, 64, None, None, None, 32, 4, None, 2880, None, 131072, 128, 201088),
    "Qwen--Qwen3-30B-A3B": (48, 2048, 32, 4, 128, None, None, None, 128, 8, None, 768, 6144, 40960, None, 151936),
    "Qwen--Qwen3-0.6B": (28, 1024, 16, 8, 128, None, None, None, None, None, None, None, 3072, 40960, None, 151936),
    "Qwen--Qwen3.5-35B-A3B": (
        *(40, 2048, 16, 2, 256, None, None, None, 256, 8, None, 512, None, 262144, None, 248320),
    ),
    "meta-llama--Llama-4-Scout-17B-16E-Instruct": (
        *(48, 5120, 40, 8, 128, None, None, None, 16, 1, None, 8192, 16384, 10485760, None, 202048),
    ),
    "google--gemma-4-26B-A4B": (
        *(30, 2816, 16, 8, 256, None, None, None, 128, 8, None, 704, 2112, 262144, 1024, 262144),
    ),
    "mistralai--Mixtral-8x7B-v0.1": (
        *(32, 4096, 32, 8, 128, None, None, None, 8, 2, None, 14336, None, 32768, None, 32000),
    ),
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8": (
        *(88, 4096, 32, 2, 128, None, None, None, 512, 22, 1, 2688, 2688, 262144, None, 131072),
    ),
}
FIELDS = (
    "num_layers hidden_size num_heads num_kv_heads head_dim value_head_dim kv_lora_rank rope_head_dim"
    " num_routed_experts num_experts_per_token num_shared_experts expert_ffn_size ffn_size context_tokens"
    " sliding_window vocab_size"
)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_facts(name: str) -> None:
    found = facts_of(name).fields
    assert {f: found[f] for f in FIELDS.split()} == dict(zip(FIELDS.split(), PUBLISHED[name], strict=True))


def test_every_stored_configuration_is_tested() -> None:
    assert {p.stem for p in (DATA / "configs").iterdir()} == set(PUBLISHED)


def test_names_ties_ends_and_drafts_of_some() -> None:
    k3 = facts_of("moonshotai--Kimi-K3")
    assert k3.fields["name"] == "KimiK3ForConditionalGeneration"
    assert k3.families == ("kimi_linear", "kimi_k3", "KimiK3ForConditionalGeneration")
    assert (k3.is_tied, k3.is_generative, k3.fields["eos_token_ids"]) == (False, True, (163586,))
    assert facts_of("deepseek-ai--DeepSeek-V3").num_draft_layers == 1
    assert facts_of("Qwen--Qwen3-0.6B").is_tied is True
    assert facts_of("google--gemma-4-26B-A4B").is_tied is True
    assert facts_of("meta-llama--Llama-4-Scout-17B-16E-Instruct").is_tied is None


ROWS = [line.split("\t") for line in (DATA / "module_names.tsv").read_text().splitlines()]


@pytest.mark.parametrize("family", sorted({family for family, _, _ in ROWS}))
def test_parameters_of_other_peoples_code_have_the_roles_they_should(family: str) -> None:
    for _, role, name in (row for row in ROWS if row[0] == family):
        (placement,) = assign_roles([name], form="safetensors", family=family)
        assert (str(placement.role), placement.is_known) == (role, True), name


def test_the_stored_names_cover_many_families() -> None:
    assert len(ROWS) > 250
    assert len({family for family, _, _ in ROWS}) > 25
    assert len({role for _, role, _ in ROWS}) >= 14

"""The choice between our kernels and the released ones, and its reasons."""

import pytest

from freehold_kernels.cuda.moe import MoeShape
from freehold_kernels.dispatch import Device, choose_linear, choose_routed_experts

H200 = Device(capability=(9, 0), shared_limit=232_448)
GB10 = Device(capability=(12, 1), shared_limit=101_376)
A100 = Device(capability=(8, 0), shared_limit=166_912)
K3 = MoeShape(blocks1=14, width=512, num_rows2=3584, top_k=16)


@pytest.mark.parametrize("tokens", [1, 8])
def test_measured_shapes_are_ours(tokens: int) -> None:
    assert choose_linear("Q8_0", 7168, 3584, tokens, H200).kernel == "q8_0_linear"
    assert choose_routed_experts("IQ1_S", K3, tokens, H200).kernel == "iq1_s_moe"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("Q4_K", 7168, 3584, 1, H200), "no dense kernel for Q4_K"),
        (("Q8_0", 7168, 3584, 9, H200), "9 tokens"),
        (("Q8_0", 7168, 3584, 0, H200), "0 tokens"),
        (("Q8_0", 7168, 3584, 1, A100), "8.0 is not one"),
        (("Q8_0", 7168, 3584, 1, GB10), "12.1 compiles but was never validated"),
        (("Q8_0", 7168, 160, 1, H200), "would add 60% of memory"),  # 256 / 160 − 1
        (("Q8_0", 64, 1 << 18, 1, H200), "do not fit into shared memory"),
    ],
)
def test_linear_refusals_say_why(arguments: tuple, reason: str) -> None:
    choice = choose_linear(*arguments)
    assert choice.kernel is None
    assert reason in choice.reason


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("IQ2_XXS", K3, 1, H200), "no routed-expert kernel for IQ2_XXS"),
        (("IQ1_S", K3, 64, H200), "64 tokens"),
        (("IQ1_S", MoeShape(blocks1=14, width=500, num_rows2=3584, top_k=16), 1, H200), "padding rows"),
        (("IQ1_S", MoeShape(blocks1=14, width=512, num_rows2=3584, top_k=200), 1, H200), "do not fit"),
    ],
)
def test_routed_expert_refusals_say_why(arguments: tuple, reason: str) -> None:
    choice = choose_routed_experts(*arguments)
    assert choice.kernel is None
    assert reason in choice.reason


def test_unvalidated_devices_can_be_allowed() -> None:
    assert choose_linear("Q8_0", 7168, 3584, 1, GB10, allow_unvalidated=True).kernel == "q8_0_linear"
    assert choose_routed_experts("IQ1_S", K3, 1, GB10, allow_unvalidated=True).kernel == "iq1_s_moe"
    assert choose_linear("Q8_0", 7168, 3584, 1, A100, allow_unvalidated=True).kernel is None

"""How far to draft: the derivation, the published numbers, and where another rule would draft too far."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from freehold.engines.layout_rules import layout_rules
from freehold.hardware.catalogue import hardware_catalogue
from freehold.models.catalogue import find_model, instantiate, model_catalogue
from freehold.plan.cluster import plan_cluster
from freehold.plan.contract import Demand
from freehold.plan.speculation import best_depth, emitted_tokens, position_pays, tok_per_s_by_depth
from freehold.plan.subject import Subject

CHANCE = st.floats(0.001, 1)
SECONDS = st.floats(0.0001, 1)


@given(emitted=st.floats(1, 10), step_s=SECONDS, acceptance=CHANCE, cost_s=SECONDS)
def test_a_position_pays_exactly_where_it_makes_it_faster(
    emitted: float, step_s: float, acceptance: float, cost_s: float
) -> None:
    before, after = emitted / step_s, (emitted + acceptance) / (step_s + cost_s)
    assume(abs(after / before - 1) > 1e-9)
    assert position_pays(acceptance, cost_s, before) is (after > before)


@given(st.lists(CHANCE, min_size=1, max_size=8), SECONDS, SECONDS)
def test_with_a_line_the_rule_finds_the_best_depth(chances: list[float], fixed_s: float, cost_s: float) -> None:
    acceptance = sorted(chances, reverse=True)
    depths = range(len(acceptance) + 1)
    steps = {n: fixed_s + cost_s * n for n in depths}
    emitted = {n: emitted_tokens(acceptance[:n]) for n in depths}
    speeds = tok_per_s_by_depth(steps, emitted)
    depth = 0
    while depth < len(acceptance) and position_pays(acceptance[depth], cost_s, speeds[depth]):
        depth += 1
    # Acceptance never rises and speed does up to there, so the first position that does not pay is the last asked.
    assert speeds[depth] == pytest.approx(max(speeds.values()))


def test_published_speeds_follow_from_tokens_and_step_times() -> None:
    steps = {1: 0.0432, 2: 0.0520, 3: 0.0546, 5: 0.0711, 7: 0.0789}
    emitted = {1: 1.689, 2: 2.207, 3: 2.257, 5: 2.844, 7: 2.844}
    published = {1: 39.113, 2: 42.464, 3: 41.325, 5: 40.028, 7: 36.056}
    assert tok_per_s_by_depth(steps, emitted) == pytest.approx(published, rel=0.001)
    assert best_depth(steps, emitted) == 2


def test_published_code_is_best_at_three() -> None:
    # Tokens per step at depth 2 to 5, and the fitted step of 37.2 + 5.95 N ms.
    emitted = {2: 2.490, 3: 2.820, 4: 3.019, 5: 3.181}
    steps = {n: 0.0372 + 0.00595 * n for n in emitted}
    assert best_depth(steps, emitted) == 3
    at_two, at_three = emitted[2] / steps[2], emitted[3] / steps[3]
    assert position_pays(emitted[3] - emitted[2], 0.00595, at_two)  # 0.330 > 0.302
    assert not position_pays(emitted[4] - emitted[3], 0.00595, at_three)  # 0.199 < 0.305


def test_cost_over_a_plain_step_drafts_too_far() -> None:
    # 5.95 / 28.67 ms = 0.2075 would take a position of 0.25; at 51 tok/s it loses.
    fixed, cost, plain = 0.0372, 0.00595, 0.02867
    emitted, step = 2.820, fixed + 3 * cost
    assert cost / plain < 0.25
    assert not position_pays(0.25, cost, emitted / step)
    assert (emitted + 0.25) / (step + cost) < emitted / step


def test_steps_that_are_no_line_are_searched() -> None:
    milliseconds = [164.5, 194.6, 289.7, 236.0, 332.1, 354.8, 376.6, 320.4]
    steps = {k: ms / 1000 for k, ms in enumerate(milliseconds, 1)}
    emitted = {k: emitted_tokens([0.7**i for i in range(1, k)]) for k in steps}
    # 2.19 tokens in 289.7 ms at 3, 2.533 in 236.0 ms at 4: a dear depth lies before a cheap one.
    assert tok_per_s_by_depth(steps, emitted)[3] < tok_per_s_by_depth(steps, emitted)[2]
    assert best_depth(steps, emitted) == 4


@pytest.mark.parametrize("acceptance", [[1.2], [0.5, 0.6], [-0.1]])
def test_what_is_no_acceptance_is_a_mistake(acceptance: list[float]) -> None:
    with pytest.raises(ValueError, match="acceptance"):
        emitted_tokens(acceptance)


@pytest.mark.parametrize(("steps", "emitted"), [({}, {}), ({1: 0.1}, {2: 1.0}), ({1: 0.0}, {1: 1.0})])
def test_depths_that_do_not_match_are_a_mistake(steps: dict[int, float], emitted: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="same depths"):
        tok_per_s_by_depth(steps, emitted)


def test_a_plan_shows_the_depth_for_the_hardware_it_was_measured_on() -> None:
    model = Subject.of_model(instantiate(*find_model("kimi-k3-neuron-iq1s", model_catalogue())))
    demand, rules = Demand(context_tokens=8192, sequences=1), layout_rules("vllm")
    plan = plan_cluster(model, hardware_catalogue()["h200"], rules, demand, nodes=3)
    assert [c.depth for c in plan.speculation] == [2]
    assert plan.speculation[0].decode_tok_per_s_by_depth["2"].trust.value == "community"
    assert plan_cluster(model, hardware_catalogue()["dgx-spark"], rules, demand, nodes=4).speculation == ()

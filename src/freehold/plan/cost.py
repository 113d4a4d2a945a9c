"""What it costs: buying, electricity, the hosted interface at a given mix, and after how many tokens they meet.

Every price is a catalogue fact or was given; a price that nobody states leaves the figure out instead of guessing it.
Read :func:`estimate_cost`.

Does not do: labour, cables, switches, cooling or resale; the notes of a plan say so.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from freehold.evidence import Evidence, calculate
from freehold.hardware.catalogue import Hardware
from freehold.plan.subject import Subject
from freehold.records.catalogue import Fact, choose_fact, parse_toml, read_facts

__all__ = ["assumption", "estimate_cost", "months_to_break_even", "price_per_output_mtok"]

_MONTHS_PER_YEAR = 12


@lru_cache(maxsize=1)
def _assumptions() -> tuple[Fact, ...]:
    text = files("freehold").joinpath("data", "catalogue", "assumptions.toml").read_text(encoding="utf-8")
    return read_facts(parse_toml(text, "assumptions.toml")["facts"], "assumptions.toml")


def assumption(name: str) -> Evidence:
    """What a plan takes for granted, with its source.

    Args:
        name: Row of ``data/catalogue/assumptions.toml``.
    """
    return choose_fact(_assumptions(), name)


def estimate_cost(
    hardware: Hardware,
    nodes: int,
    subject: Subject,
    *,
    usd_per_kwh: float | None = None,
    input_per_output: float | None = None,
    tokens_per_month: int | None = None,
) -> dict[str, Evidence]:
    """Purchase, electricity, the hosted interface, and the number of output tokens at which buying costs the same.

    Args:
        hardware: What is bought.
        nodes: How many units.
        subject: The model, for its hosted price.
        usd_per_kwh: Price of electricity; the catalogue's assumption by default.
        input_per_output: Uncached input tokens per output token; the catalogue's assumption by default.
        tokens_per_month: Output tokens per month, for the months until both meet.
    """
    count = Evidence.verified(nodes, "", source="nodes asked for")
    power = hardware.fact("power", "max")
    per_kwh = _given(usd_per_kwh, "USD/kWh", "electricity")
    mix = _given(input_per_output, "", "input_per_output")
    capex = calculate(
        "USD", "price × nodes", lambda price, nodes: price * nodes, price=hardware.fact("price"), nodes=count
    )
    per_node = calculate(
        "USD", "W / 1,000 × hours × USD per kWh", lambda power, hours, per_kwh: power / 1000 * hours * per_kwh,
        power=power, hours=assumption("hours_per_year"), per_kwh=per_kwh,
    )  # fmt: skip
    found = {
        "purchase_usd": capex,
        "electricity_usd_per_node_year": per_node,
        "electricity_usd_per_year": calculate(
            "USD", "per node × nodes", lambda per_node, nodes: per_node * nodes, per_node=per_node, nodes=count
        ),
    }
    hosted = price_per_output_mtok(subject, mix)
    found["hosted_usd_per_output_mtok"] = hosted
    found["break_even_output_tokens"] = calculate(
        "tokens", "purchase / hosted price, electricity not counted",
        lambda purchase, hosted: round(purchase / hosted * 1_000_000), purchase=capex, hosted=hosted,
    )  # fmt: skip
    if tokens_per_month is not None:
        found["break_even_months"] = months_to_break_even(
            capex, hosted, found["electricity_usd_per_year"], tokens_per_month
        )
    return found


def price_per_output_mtok(subject: Subject, input_per_output: Evidence) -> Evidence:
    """Hosted price of a million output tokens together with the input that goes with them.

    Args:
        subject: The model.
        input_per_output: Uncached input tokens per output token.
    """
    return calculate(
        "USD", "input price × input per output + output price",
        lambda input_price, mix, output_price: input_price * mix + output_price,
        input_price=subject.fact("price", "input"), mix=input_per_output, output_price=subject.fact("price", "output"),
    )  # fmt: skip


def months_to_break_even(
    purchase: Evidence, hosted_per_mtok: Evidence, electricity_per_year: Evidence, tokens_per_month: int
) -> Evidence:
    """Months until what was saved on the hosted interface, electricity paid, has bought the hardware.

    Args:
        purchase: Price of the hardware.
        hosted_per_mtok: Hosted price per million output tokens, their input included.
        electricity_per_year: Electricity of all nodes.
        tokens_per_month: Output tokens per month.

    Returns:
        Months, or not measured where electricity alone costs as much as the hosted interface.
    """
    for evidence in (purchase, hosted_per_mtok, electricity_per_year):
        if evidence.number is None:
            return Evidence.not_measured(str(evidence.reason), "months")
    saved = (
        float(hosted_per_mtok.number or 0) * tokens_per_month / 1e6
        - float(electricity_per_year.number or 0) / _MONTHS_PER_YEAR
    )
    if saved <= 0:
        return Evidence.not_measured(
            f"never: at {tokens_per_month:,} output tokens a month the hosted interface costs less than electricity",
            "months",
        )
    return calculate(
        "months", "purchase / (hosted price × tokens − electricity of a month)",
        lambda purchase, hosted, electricity, tokens: (
            purchase / (hosted * tokens / 1e6 - electricity / _MONTHS_PER_YEAR)
        ),
        purchase=purchase, hosted=hosted_per_mtok, electricity=electricity_per_year,
        tokens=Evidence.assumed(tokens_per_month, "tokens", source="output tokens per month asked for"),
    )  # fmt: skip


def _given(value: float | None, unit: str, name: str) -> Evidence:
    if value is None:
        return assumption(name)
    return Evidence.assumed(value, unit, source="given for this plan")

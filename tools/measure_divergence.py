#!/usr/bin/env python3
"""Measure how far a running server's log-probabilities lie from a reference, without judging it.

This is where the rows of ``data/verify/limits.toml`` come from: a healthy server is measured, and the row printed.

    python tools/measure_divergence.py --url http://127.0.0.1:8080/v1 --reference embedded:NAME

Does not do: verdicts (``freehold verify``).
"""

from __future__ import annotations

import argparse
import json
import sys

from freehold.client.openai import open_endpoint
from freehold.engines.registry import recognise
from freehold.errors import FreeholdError
from freehold.verify.divergence import Divergence, measure_divergence
from freehold.verify.interview import Interview
from freehold.verify.limits import load_limits
from freehold.verify.reference import open_reference
from freehold.verify.texts import load_texts
from freehold.world import LocalWorld, utc_text


def row(found: Divergence) -> dict[str, object]:
    """The statistics a limit is made of, rounded as the data file holds them."""
    return {
        "mean_abs": round(found.mean_abs_nats, 4),
        "p90_abs": round(found.p90_abs_nats, 3),
        "max_abs": round(found.max_abs_nats, 3),
        "worst_text_mean_abs": round(found.worst_text_mean_abs_nats, 4),
        "shift": round(found.shift_nats, 4),
        "same_top": f"{found.num_same_top} of {found.num_ranked}",
        "decisive": f"{found.num_decisive_same_top} of {found.num_decisive}",
        "unlisted": found.num_unlisted,
        "n": found.num_positions,
    }


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--reference", required=True, help="a file, or embedded:NAME")
    given = parser.parse_args()
    world, limits = LocalWorld(), load_limits()
    margin = limits.fingerprint.decisive_margin_nats
    try:
        reference = open_reference(given.reference)
        endpoint = open_endpoint(world, given.url)
        found = recognise(world, endpoint)
        asked = Interview(endpoint, found.dialect, world, load_texts(), limits, reference=reference)
        expected = {text.name: text.scores() for text in reference.texts}
        started = world.monotonic()
        if asked.scores is None:
            print("error: the server gives no scores of given tokens", file=sys.stderr)
            return 1
        seconds = world.monotonic() - started
        again = asked.rescored
    except FreeholdError as error:
        print(f"error: {error.what}\n  why: {error.why}\n  try: {error.fix}", file=sys.stderr)
        return error.exit_code
    rescored = {}
    if again:
        rescored = row(
            measure_divergence(
                {name: pair.given for name, pair in again.items()},
                {name: pair.generated for name, pair in again.items()},
                decisive_margin_nats=margin,
            )
        )
    report = {
        "engine": f"{found.dialect.name} {found.version or ''}".strip(),
        "date": utc_text(world.now()),
        "scoring_s": round(seconds, 1),
        "fingerprint": row(measure_divergence(expected, asked.scores, decisive_margin_nats=margin)),
        "rescoring": rescored,
    }
    print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

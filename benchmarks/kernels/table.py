"""Print the recorded results as a Markdown table: one command makes the tables of docs/kernels.md.

Method: of each case, token count and arm the newest record counts; ratio is the released plugin's time over ours.

Usage: table.py results/h200.jsonl [--ours "ours: one launch"] [--released "released: two products"] [--like IQ1_S]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--ours", nargs="*", default=["ours", "ours: one launch"])
    parser.add_argument("--released", nargs="*", default=["released", "released: two products"])
    parser.add_argument("--like", default="", help="only cases whose name contains this")
    options = parser.parse_args()
    newest: dict[tuple[str, int], dict[str, dict]] = {}
    for line in options.results.read_text("utf-8").splitlines():
        record = json.loads(line)
        if options.like not in record["case"]:
            continue
        arm = "ours" if record["arm"] in options.ours else "released" if record["arm"] in options.released else None
        if arm:
            newest.setdefault((record["case"], record["tokens"]), {})[arm] = record
    print("| case | M | released µs | ours µs | ours TB/s | share of copy | ratio |")
    print("|---|---|---|---|---|---|---|")
    for (case, tokens), arms in newest.items():
        ours, released = arms["ours"], arms["released"]
        rate = ours["weight_bytes"] / ours["median_s"]
        print(
            f"| {case} | {tokens} | {released['median_s'] * 1e6:.1f} | {ours['median_s'] * 1e6:.1f} | {rate / 1e12:.2f}"
            f" | {rate / ours['copy_bytes_per_s']:.0%} | {released['median_s'] / ours['median_s']:.1f} |"
        )

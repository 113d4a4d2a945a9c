"""The ruler's figures as text: beside those of other clients, against the goals, and in docs/concepts/ruler.md.

Read :func:`render`.

Does not do: measuring (``ruler.py``).
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "ruler.jsonl"
DOCUMENT = HERE.parent / "docs" / "concepts" / "ruler.md"
BEGIN, END = "<!-- begin figures -->", "<!-- end figures -->"
GOALS = {"ttft_p99_ms": 13.0, "itl_p99_ms": 1.2, "cpu_s": 0.06}
"""Best of the other clients at 256 streams: TTFT and ITL p99 of SGLang's Rust client, CPU of llama-benchy."""
NAMES = {"ttft_p99_ms": "TTFT p99 error, ms", "itl_p99_ms": "ITL p99 error, ms", "cpu_s": "CPU s per 1,000 tokens"}
NOT_COMPARED = {"what": "the first chunk holds three tokens, ids are listed", "wrong": {}}


def marginal_cpu_s(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """CPU seconds per 1,000 further tokens, from 64 to 256 streams: start-up drops out."""
    plain = {row["streams"]: row for row in rows if row["script"] == "plain"}
    if not {64, 256} <= set(plain):
        return None
    more = plain[256]["tokens"] - plain[64]["tokens"]
    return (plain[256]["cpu_s"] - plain[64]["cpu_s"]) / more * 1000


def render(record: Mapping[str, Any]) -> str:
    """The figures of a run as Markdown, beside those of the other clients."""
    peers = tomllib.loads((HERE / "peer_clocks.toml").read_text(encoding="utf-8"))
    rows = record["rows"]
    plain = [row for row in rows if row["script"] == "plain"]
    out = [
        f"Measured {record['date']} with `{record['command']}`: {record['processor']}, {record['system']}, Python "
        f"{record['python']}; load average {record['load_before']:.2f} before and {record['load_after']:.2f} after. "
        f"Commit `{record['commit'][:12]}`{' with changes' if record['dirty'] else ''}.",
        "",
        "### Plain streams: reported minus true, in ms",
        "",
        "Paired with the log; p50 keeps its sign, p99 is of the magnitude. *Repeated* counts runs before this one in "
        "which the client said that it had to wait for a processor.",
        "",
        "| streams | requests | TTFT p50 | p99 | each chunk p50 | p99 | ITL p50 | p99 | TPOT p50 | p99 | E2E p50 | p99 "
        "| tok/s | load held | lost | repeated |",
        "| ---: " * 16 + "|",
    ]
    for row in plain:
        errors = [
            f"{row[name]['p50']:+.{digits}f} | {row[name]['p99']:.{digits}f}"
            for name, digits in (("ttft", 3), ("chunk", 3), ("itl", 3), ("tpot", 4), ("e2e", 3))
        ]
        out.append(
            f"| {row['streams']} | {row['requests']} | {' | '.join(errors)} | {row['tok_per_s_percent']:+.2f} % "
            f"| {row['load_held_percent']:+.1f} % | {row['lost']} | {len(row['disturbed'])} |"
        )
    out += ["", "### Beside other clients, 256 streams", "", *_beside(record, peers, plain)]
    out += [
        "",
        f"Other clients: {peers['source']}; {peers['machine']}; {peers['checked']}. A dash is a figure that the tool "
        "does not report; of several runs the best is shown.",
        "",
        "### Difficult streams, 16 at a time",
        "",
        "| stream | freehold | tokens | tok/s error | what it says | wrong elsewhere |",
        "| --- | --- | ---: | ---: | --- | --- |",
    ]
    difficult = {entry["script"]: entry for entry in peers["difficult"]}
    for row in rows:
        if row["script"] == "plain":
            continue
        entry = difficult.get(
            row["script"], {"what": "the first chunk holds three tokens, ids are listed", "wrong": {}}
        )
        elsewhere = "; ".join(f"{peers['tools'][tool]}: {words}" for tool, words in entry["wrong"].items())
        says = "; ".join(row["flags"]) or "—"
        out.append(
            f"| {entry['what']} | {row['verdict']} | {row['output_tokens']:.0f} | {row['tok_per_s_percent']:+.2f} % "
            f"| {says} | {elsewhere or '—'} |"
        )
    return "\n".join(out)


def _beside(record: Mapping[str, Any], peers: Mapping[str, Any], plain: Sequence[Mapping[str, Any]]) -> list[str]:
    own = next(row for row in plain if row["streams"] == 256)
    lines = [
        "| client | TTFT p99 error, ms | ITL p99 error, ms | TPOT error, ms | tok/s error | load held "
        "| CPU s per 1,000 tokens | further CPU s |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    marginal = marginal_cpu_s(record["rows"])
    lines.append(
        f"| **freehold {record['freehold']}** | {own['ttft_p99_ms']:+.3f} | {own['itl_p99_ms']:+.3f} "
        f"| {own['tpot']['p50']:+.4f} | {own['tok_per_s_percent']:+.2f} % | {own['load_held_percent']:+.1f} % "
        f"| {own['cpu_per_1000_s']:.4f} | {'—' if marginal is None else f'{marginal:.4f}'} |"
    )
    for peer in peers["plain"]:

        def cell(name: str, form: str, peer: Mapping[str, Any] = peer) -> str:
            return form.format(peer[name]["256"]) if name in peer else "—"

        lines.append(
            f"| {peers['tools'][peer['tool']]} | {cell('ttft_p99_ms', '{:+.0f}')} | {cell('itl_p99_ms', '{:+.1f}')} "
            f"| {cell('tpot_ms', '{:+.2f}')} | {cell('tok_per_s_percent', '{:+.1f} %')} "
            f"| {cell('load_held_percent', '{:+.1f} %')} | {peer['cpu_s']:.3f} | {peer['cpu_marginal_s']:.3f} |"
        )
    return lines


def replace_figures(document: str, record: Mapping[str, Any]) -> str:
    """The document with the figures of a run between its marks."""
    head, _, rest = document.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{render(record)}\n\n{END}{tail}"


def last_record() -> dict[str, Any]:
    """The last run in the results file that was not a quick one."""
    records = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    return next(record for record in reversed(records) if "--quick" not in record["command"])


def met_goals(record: Mapping[str, Any]) -> list[str]:
    """Each goal in words, met or not."""
    own = next(row for row in record["rows"] if row["script"] == "plain" and row["streams"] == 256)
    values = {**own, "cpu_s": own["cpu_per_1000_s"]}
    lines = []
    for key, goal in GOALS.items():
        state = "met" if abs(values[key]) < goal else "MISSED"
        lines.append(f"{NAMES[key]} at 256 streams: {values[key]:.4f}, goal < {goal:g}: {state}")
    difficult = [row for row in record["rows"] if row["script"] != "plain"]
    right = sum(row["verdict"] == "right" for row in difficult)
    return [*lines, f"difficult streams answered right: {right} of {len(difficult)}"]

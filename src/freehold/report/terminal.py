"""The end of a run on one screen: verdict, model, machine, speed, memory, and where the files are.

Read :func:`render_summary`. At most 24 lines of 80 columns; what does not fit is in the report, and is said to be.

Does not do: writing to a terminal (``cli/``); colours only repeat what the words say.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from freehold.evidence import DASH, Evidence
from freehold.records.bench import BenchArm
from freehold.records.verdict import Outcome
from freehold.report.content import describe
from freehold.report.document import Cited, Document, cited_in
from freehold.report.headline import UNVERIFIED, speed_mark
from freehold.report.load import REPORT_FILES, RunRecords, Stage
from freehold.report.memory import actual_share, memory_actual, memory_predicted
from freehold.report.repeat import machine_text, model_text
from freehold.report.wording import MIN_INTERVAL_REQUESTS, arm_name, kind_tag, plural, value_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

__all__ = ["render_summary"]

_WIDTH = 80
_LABEL_WIDTH = 14
_MAX_ARMS = 6
_MAX_MARKS = 3
_MAX_SENTENCE_LINES = 2
_STYLES = {Outcome.PASS: "green", Outcome.WARN: "yellow", Outcome.INCONCLUSIVE: "magenta", Outcome.FAIL: "red"}
_ICONS = {Outcome.PASS: "✓", Outcome.WARN: "!", Outcome.INCONCLUSIVE: "?", Outcome.FAIL: "✗"}


def render_summary(run: RunRecords) -> RenderableType:
    """A run on one screen.

    Args:
        run: The records.

    Returns:
        Something that a rich console prints.
    """
    from rich.console import Group

    document = describe(run)
    return Group(*_verdict(document), *_subject(run), *_speed(run), *_memory(run), *_rest(run, document))


def _verdict(document: Document) -> list[Text]:
    from rich.text import Text

    headline = document.headline
    title = f"{_ICONS[headline.outcome]} {_plain(headline.word)}"
    lines = [Text(title, style=f"bold {_STYLES[headline.outcome]}")]
    wrapped = textwrap.wrap(
        _plain(headline.sentence), _WIDTH - 2, max_lines=_MAX_SENTENCE_LINES, placeholder=" …", break_on_hyphens=False
    )
    lines += [Text(f"  {line}") for line in wrapped]
    for mark in headline.marks[:_MAX_MARKS]:
        lines.append(_line((f"{_ICONS[mark.outcome]} {mark.word}: ", f"bold {_STYLES[mark.outcome]}"), mark.sentence))
    return lines


def _subject(run: RunRecords) -> list[Text]:
    lines = [_pair("model", model_text(run))]
    if run.deployment is not None:
        lines.append(_pair("engine", f"{run.deployment.engine} {run.deployment.engine_version or ''}".rstrip()))
    if run.deployment is not None and run.is_attached:
        return [*lines, _pair("server", run.deployment.base_url)]
    return [*lines, _pair("machine", machine_text(run))]


def _speed(run: RunRecords) -> list[RenderableType]:
    from rich.table import Table
    from rich.text import Text

    if run.bench is None or not run.bench.arms:
        reason = run.why_missing(Stage.BENCH) or "interrupted before the first counted request"
        return [_pair("speed", f"{DASH} {reason}")]
    mark = speed_mark(run)
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, pad_edge=False, header_style="bold")
    style = "bold red" if UNVERIFIED in mark else "bold yellow" if mark else "bold"
    table.add_column(Text(mark or "speed", style=style), no_wrap=True, overflow="ellipsis", max_width=24)
    for title in ("decode speed", "of ceiling", "TTFT", "n"):
        table.add_column(title, no_wrap=True, justify="right")
    for arm in run.bench.arms[:_MAX_ARMS]:
        table.add_row(Text(_plain(arm_name(arm.prompt_class, arm.concurrency))), *_arm_cells(arm))
    blocks: list[RenderableType] = [table]
    left_out = len(run.bench.arms) - _MAX_ARMS
    if left_out > 0:
        blocks.append(Text(f"  … {plural(left_out, 'more arm')} in the report"))
    if run.plan is not None:
        ceiling = run.plan.decode_ceiling_tok_per_s
        blocks.append(_pair("ceiling", f"{_value(ceiling)}, one stream"))
    return blocks


def _arm_cells(arm: BenchArm) -> tuple[str, ...]:
    has_enough = arm.requests >= MIN_INTERVAL_REQUESTS
    cells = []
    for metric in ("decode_tok_per_s", "ttft_s"):
        spread = arm.metrics.get(metric)
        cited = None if spread is None else Cited(name=metric, evidence=spread.mean, shows_interval=has_enough)
        cells.append(DASH if cited is None else value_text(cited))
    return cells[0], arm.ceiling_share.text, cells[1], str(arm.requests)


def _memory(run: RunRecords) -> list[Text]:
    predicted, actual, share = memory_predicted(run), memory_actual(run), actual_share(run)
    if share.is_missing:
        text = f"predicted {_value(predicted)}, actual {_value(actual)}"
    else:
        text = f"{_value(actual)}, {share.text} of the predicted {_value(predicted)}"
    lines = [_pair("memory", text)]
    if run.deployment is not None and not run.is_attached:
        lines.append(_pair("ready after", _value(run.deployment.ready_s)))
    return lines


def _rest(run: RunRecords, document: Document) -> list[Text]:
    from rich.text import Text

    missing = {cited.name for cited in cited_in(document) if cited.evidence.is_missing}
    lines = []
    if missing:
        lines.append(_pair("not measured", f"{plural(len(missing), 'value')}; the report says which, and why"))
    if run.journey is not None and run.journey.is_serving and run.journey.base_url and not run.is_attached:
        lines.append(_pair("endpoint", f"{run.journey.base_url} until `freehold stop`"))
    report = run.folder / REPORT_FILES[0]
    places = [("report", report)] if report.is_file() else []
    for label, path in (*places, ("records", run.folder)):
        # A path is for copying: it may run over the line, but it is never cut.
        lines.append(Text(f"{label:<{_LABEL_WIDTH}}{_plain(str(path))}", overflow="fold"))
    return lines


def _value(evidence: Evidence) -> str:
    tag = kind_tag(evidence)
    return f"{evidence.text} ({tag})" if tag else evidence.text


def _pair(label: str, text: str) -> Text:
    return _line((f"{label:<{_LABEL_WIDTH}}", "bold"), text)


def _line(start: tuple[str, str], text: str) -> Text:
    """One line that is cut, not wrapped, where the terminal ends."""
    from rich.text import Text

    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(_plain(start[0]), style=start[1])
    line.append(_plain(text))
    return line


def _plain(text: str) -> str:
    """Text without anything that could steer a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise

import pytest
from sample_run import RECIPE, Shape
from test_report_content import numbered, numbers_in

from freehold.evidence import DASH
from freehold.report.content import describe
from freehold.report.document import cited_in
from freehold.report.load import RunRecords
from freehold.report.page import render_html
from freehold.report.wording import value_text

Records = Callable[..., RunRecords]
Page = Callable[..., str]

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>&\"'"
VOID = {"meta", "link", "br", "img", "hr", "input", "path", "rect", "line", "circle"}


class Parsed(HTMLParser):
    """Every element of a page with its attributes, the text inside each kind of element, and unclosed elements."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def values(self, attribute: str) -> list[str]:
        return [attributes[attribute] for _, attributes in self.elements if attribute in attributes]

    def visible(self) -> str:
        return " ".join(data for tag, data in self.texts if tag not in ("style", "script"))


SHAPES = [
    Shape(),
    Shape(is_attached=True, verification="self"),
    Shape(verification="failed"),
    Shape(fits=False, free_bytes=200_000_000),
    Shape(has_server=False),
    Shape(bench="empty"),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_page_loads_nothing(page: Page, shape: Shape) -> None:
    text = page(shape)
    parsed = Parsed(text)
    for attribute in ("src", "srcset", "href", "xlink:href", "action", "formaction", "data", "poster", "background"):
        assert [v for v in parsed.values(attribute) if not v.startswith(("#", "data:"))] == []
    assert not {"iframe", "object", "embed", "base", "audio", "video", "img"} & {tag for tag, _ in parsed.elements}
    styles = "".join(data for tag, data in parsed.texts if tag == "style") + " ".join(parsed.values("style"))
    assert "@import" not in styles
    assert re.findall(r"url\((?!#)", text) == []
    policy = next(m["content"] for m in parsed.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "http" not in policy


@pytest.mark.parametrize("shape", SHAPES)
def test_the_page_is_whole(page: Page, shape: Shape) -> None:
    parsed = Parsed(page(shape))
    assert parsed.open == []
    ids = Counter(parsed.values("id"))
    assert [name for name, count in ids.items() if count > 1] == []
    targets = [v for a in ("aria-describedby", "aria-labelledby", "popovertarget") for v in parsed.values(a)]
    targets += [v.removeprefix("#") for v in parsed.values("href") if v.startswith("#")]
    assert [target for target in targets if target not in ids] == []
    assert len(parsed.all("h1")) == 1
    levels = [int(tag[1]) for tag, _ in parsed.elements if re.fullmatch(r"h[1-6]", tag)]
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert all(th.get("scope") for th in parsed.all("th"))


def test_every_number_has_its_evidence(page: Page, records: Records) -> None:
    parsed = Parsed(page())
    buttons = [a for a in parsed.all("button") if "ev" in a.get("class", "").split()]
    cited = list(cited_in(describe(records())))
    assert len(buttons) == len(cited) > 80
    assert all(b["popovertarget"] == b["aria-describedby"] for b in buttons)
    popovers = [a for _, a in parsed.elements if "popover" in a]
    assert [p["id"] for p in popovers] == [b["popovertarget"] for b in buttons]
    visible = parsed.visible()
    for one in cited:
        assert one.name in visible
        assert (one.evidence.source or one.evidence.reason or "") in visible


def test_text_from_records_is_text(records: Records) -> None:
    run = records(Shape(classes=(HOSTILE, "prose"), recipe=f"{RECIPE}# {HOSTILE}\n"))
    assert run.deployment is not None
    assert run.verification is not None
    verdict = replace(run.verification.verdicts[1], observation=HOSTILE, check=HOSTILE, why=HOSTILE, remedy=HOSTILE)
    run = replace(
        run,
        deployment=replace(run.deployment, engine=HOSTILE, engine_version=HOSTILE, effective={HOSTILE: HOSTILE}),
        verification=replace(run.verification, verdicts=(*run.verification.verdicts, verdict)),
        file_problems=(HOSTILE,),
    )
    parsed = Parsed(render_html(run))
    assert len(parsed.all("script")) == 1
    assert parsed.all("img") == []
    assert [a for _, attributes in parsed.elements for a in attributes if a.startswith("on")] == []
    assert parsed.visible().count(HOSTILE) > 10


@pytest.mark.parametrize("keeps_odd", [True, False])
def test_what_is_missing_is_a_dash_in_the_page_too(records: Records, keeps_odd: bool) -> None:
    _, count = numbered(records(), set())
    missing = {i for i in range(count) if not (keeps_odd and i % 2)}
    run, _ = numbered(records(), missing)
    text = render_html(run)
    assert not numbers_in(text, count) & missing
    buttons = re.findall(r'<button type="button" class="ev([^"]*)"[^>]*>(.*?)</button>', text)
    cited = list(cited_in(describe(run)))
    assert len(buttons) == len(cited)
    assert sum("missing" in classes.split() for classes, _ in buttons) == sum(c.evidence.is_missing for c in cited)
    for classes, content in buttons:
        assert ("missing" in classes.split()) == (DASH in content)


def test_charts_show_every_request_once(page: Page, records: Records) -> None:
    text = page()
    figure = re.search(r'<figure id="chart-decode">.*?</figure>', text, flags=re.DOTALL)
    assert figure is not None
    for size in ("wide", "narrow"):
        chart = re.search(rf'<div class="{size}".*?</svg>', figure[0], flags=re.DOTALL)
        assert chart is not None
        # filled: 15 counted requests of two classes; hollow: 2 dropped ones of each
        assert len(re.findall(r'<path[^>]*fill="var\(--series\)"[^>]*stroke="var\(--paper\)"', chart[0])) == 30
        assert len(re.findall(r'<path[^>]*fill="var\(--paper\)"[^>]*stroke="var\(--muted\)"', chart[0])) == 4
    assert "#0000" not in re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)


def test_what_a_chart_shows_is_also_a_table(page: Page, records: Records) -> None:
    visible = Parsed(page()).visible()
    table = next(b for s in describe(records()).sections for b in s.blocks if getattr(b, "slug", "") == "requests")
    cells = [cell for group in table.groups for row in group.rows for cell in row.cells]
    assert len(cells) == 34 * 7
    assert all(str(cell) in visible for cell in cells)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (Shape(has_samples=False), "the benchmark kept no raw samples"),
        (Shape(is_attached=True, verification="self"), "attached to a server that freehold did not start"),
    ],
)
def test_without_data_there_is_a_dash_instead_of_a_picture(page: Page, shape: Shape, reason: str) -> None:
    text = page(shape)
    assert reason in Parsed(text).visible()
    assert ('id="chart-decode"' in text) == shape.has_samples
    assert ('id="chart-memory"' in text) == (not shape.is_attached)


def test_a_ceiling_far_above_is_named_and_does_not_flatten_the_picture(records: Records) -> None:
    from freehold.report.charts import WIDE, draw
    from freehold.report.document import Chart

    def caption(run: RunRecords) -> str:
        blocks = [b for s in describe(run).sections for b in s.blocks if isinstance(b, Chart) and b.name == "decode"]
        return blocks[0].caption

    run = records()
    assert run.plan is not None
    assert "ceiling 101 tok/s" in draw("decode", run, WIDE)
    assert caption(run).endswith("Dashed: the ceiling.")
    far = replace(run.plan.decode_ceiling_tok_per_s, value=5_000.0)
    run = replace(run, plan=replace(run.plan, decode_ceiling_tok_per_s=far))
    assert "ceiling" not in draw("decode", run, WIDE)
    assert caption(run).endswith("The ceiling, 5,000 tok/s, lies far above the picture.")


def test_the_band_of_a_mean_stays_inside_its_picture(records: Records) -> None:
    from freehold.report.charts import WIDE, draw

    run = records()
    assert run.bench is not None
    first, *others = run.bench.arms
    speed = first.metrics["decode_tok_per_s"]
    assert speed.mean.interval is not None
    wide = replace(speed.mean, interval=replace(speed.mean.interval, low=-500.0, high=900.0))
    arm = replace(first, metrics={**first.metrics, "decode_tok_per_s": replace(speed, mean=wide)})
    wild = replace(run, bench=replace(run.bench, arms=(arm, *others)))
    size = re.compile(r'viewBox="[^"]*"')
    assert size.findall(draw("decode", wild, WIDE)) == size.findall(draw("decode", run, WIDE))


def test_a_picture_of_few_requests_states_no_interval(records: Records) -> None:
    from freehold.report.charts import WIDE, draw
    from freehold.report.document import Chart

    for name, has_band in (("few", False), ("full", True)):
        run = records(Shape(bench=name))
        assert ("±" in draw("decode", run, WIDE)) is has_band
        (chart,) = [b for s in describe(run).sections for b in s.blocks if isinstance(b, Chart) and b.name == "decode"]
        assert ("Band:" in chart.caption) is has_band


def test_the_same_records_give_the_same_bytes(page: Page, records: Records) -> None:
    assert render_html(records()) == page()


def test_a_missing_number_is_read_out_as_one(page: Page) -> None:
    text = page(Shape(fits=False, free_bytes=200_000_000))
    assert re.search(r'class="ev missing"[^>]*><b>—</b>.*?<span class="aside"> not measured</span>', text)


# --- colours --------------------------------------------------------------------------------------------------------


def variables(css: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z0-9-]+):\s*(#[0-9a-f]{3,6})", css))


def luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    if len(digits) == 3:
        digits = "".join(2 * c for c in digits)
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours.

    Source: WCAG 2.2, relative luminance and contrast ratio.
    """
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def themes() -> dict[str, dict[str, str]]:
    folder = files("freehold") / "data" / "report"
    css = (folder / "page.css").read_text()
    light = variables(css[: css.index("@media")])
    paper = variables(css[css.index("@media print") :])
    return {
        "light": light,
        "dark": {**light, **variables((folder / "dark.css").read_text())},
        "print": {**light, **paper},
    }


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_text_has_enough_contrast(theme: str) -> None:
    colours = themes()[theme]
    assert contrast("#000", "#fff") == pytest.approx(21)
    pairs = [(ink, ground) for ink in ("ink", "muted", "accent") for ground in ("paper", "panel")]
    for tone in ("pass", "warn", "fail", "inconclusive"):
        pairs += [(tone, "paper"), (tone, f"{tone}-tint"), ("ink", f"{tone}-tint")]
    pairs += [("ink", f"term-{i}") for i in range(1, 7)] + [("ink", "neutral")]
    low = {(a, b): round(contrast(colours[a], colours[b]), 2) for a, b in pairs}
    assert {pair: ratio for pair, ratio in low.items() if ratio < 4.5} == {}
    assert contrast(colours["series"], colours["paper"]) >= 3  # a picture's marks


def test_both_ways_to_dark_are_the_same() -> None:
    text = (files("freehold") / "data" / "report" / "page.css").read_text()
    assert text.count("{{ dark }}") == 2
    assert "{{" not in re.search(r"<style>(.*?)</style>", _bare_page(), flags=re.DOTALL)[1]  # type: ignore[index]


def _bare_page() -> str:
    from pathlib import Path

    return render_html(RunRecords(folder=Path("nowhere")))


def test_a_run_of_nothing_is_a_page_too() -> None:
    parsed = Parsed(_bare_page())
    assert parsed.open == []
    assert "not verified" in parsed.visible()
    assert value_text(next(cited_in(describe(RunRecords(folder=__import__("pathlib").Path("nowhere")))))) == DASH

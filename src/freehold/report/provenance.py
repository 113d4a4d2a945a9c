"""Which record was made from which, by sha256, and whether the chain still holds.

Read :func:`broken_links`, then :func:`chain_section`.

Does not do: hashing (``load.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from freehold.report.document import Block, Column, Row, RowGroup, Section, Table, Text
from freehold.report.load import RECIPE_FILE, RunRecords, Stage

__all__ = ["Link", "broken_links", "chain_section", "links_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One thing a record says it was made from.

    Args:
        name: The record's own name for it.
        sha256: Hash it had then.
        file: The file of this run folder with that hash; None where there is none.
        replaced: The file of this run folder that has that name and another hash; None where there is none.
    """

    name: str
    sha256: str
    file: str | None
    replaced: str | None

    @property
    def text(self) -> str:
        """The link in words, with the whole hash only where no file of the folder has it."""
        if self.file is not None:
            return f"{self.name} ✓" if self.name == self.file else f"{self.name} ✓ {self.file}"
        if self.replaced is not None:
            return f"{self.name} ✗ not the one here: {self.sha256}"
        return f"{self.name} {self.sha256}"


def links_of(made_from: Mapping[str, str], sha256_by_file: Mapping[str, str]) -> tuple[Link, ...]:
    """Resolve what a record was made from against the files of a run folder."""
    file_by_sha256 = {sha: name for name, sha in reversed(list(sha256_by_file.items()))}
    links = []
    for name, sha in made_from.items():
        same_name = next((f for f in sha256_by_file if f.rpartition("/")[2].split(".")[0] == name.split(".")[0]), None)
        found = file_by_sha256.get(sha)
        links.append(Link(name=name, sha256=sha, file=found, replaced=None if found else same_name))
    return tuple(links)


def broken_links(run: RunRecords) -> tuple[str, ...]:
    """One sentence per record that was made from another file than the one that lies beside it now."""
    sentences = []
    for stage, made_from in _made_from(run).items():
        for link in links_of(made_from, run.sha256_by_file):
            if link.replaced is not None:
                sentences.append(f"{stage.file} was made from another {link.replaced} than the one here")
    for name, sha in (run.bench.samples if run.bench is not None else {}).items():
        if run.sha256_by_file.get(f"samples/{name}", sha) != sha:
            sentences.append(f"samples/{name} is not the file that {Stage.BENCH.file} was made from")
    return tuple(sentences)


def _made_from(run: RunRecords) -> dict[Stage, Mapping[str, str]]:
    records = {
        Stage.PLAN: run.plan,
        Stage.PREFLIGHT: run.preflight,
        Stage.DEPLOYMENT: run.deployment,
        Stage.VERIFICATION: run.verification,
        Stage.BENCH: run.bench,
    }
    return {stage: record.made_from for stage, record in records.items() if record is not None}


def chain_section(run: RunRecords) -> Section:
    """The chapter that shows the chain: each record, its hash, what it was made from."""
    made_from = _made_from(run)
    rows = []
    for name, sha in run.sha256_by_file.items():
        stage = next((stage for stage in Stage if stage.file == name), None)
        links = links_of(made_from.get(stage, {}), run.sha256_by_file) if stage is not None else ()
        rows.append(Row(cells=(name, sha, "\n".join(link.text for link in links) or _origin_of(name))))
    if rows:
        table = Table(
            slug="chain",
            caption="Records of this run",
            columns=(Column(title="file"), Column(title="sha256", is_code=True), Column(title="made from")),
            groups=(RowGroup(rows=tuple(rows)),),
        )
        blocks: tuple[Block, ...] = (table,)
    else:
        blocks = (Text(text="The run folder holds no record.", is_missing=True),)
    problems = (*broken_links(run), *run.file_problems)
    return Section(
        slug="provenance",
        title="Provenance",
        lead="Every stage names the sha256 of what it was made from. "
        + ("What does not match: " + "; ".join(problems) + "." if problems else "The chain of this run is unbroken."),
        blocks=blocks,
    )


def _origin_of(name: str) -> str:
    if name == RECIPE_FILE:
        return "what was asked for"
    return "raw data of bench.json" if name.startswith("samples/") else "the outside"

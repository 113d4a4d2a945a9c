"""What somebody else needs to do it again: recipe, commands, versions, files with their hashes, the machine.

Read :func:`repeat_section`.

Does not do: running anything.
"""

from __future__ import annotations

import re
import shlex

from freehold.evidence import DASH
from freehold.records.node import Accelerator
from freehold.report.document import Block, Cell, Cited, Code, Column, Facts, Row, RowGroup, Section, Table, Text
from freehold.report.load import RECIPE_FILE, RunRecords, Stage
from freehold.report.wording import plural
from freehold.units import format_memory, format_number

__all__ = ["machine_text", "model_text", "repeat_section"]

_FOLDERS = re.compile(r"(?<![\w.:/])/(?:[^/\s:]+/)+")
"""The folders of an absolute path; an address such as ``http://host/v1`` is none."""


def model_text(run: RunRecords) -> str:
    """The model in a few words: its name, and its main storage type where the checkpoint was read."""
    if run.recipe is not None:
        name = run.recipe.model
    elif run.plan is not None:
        name = run.plan.model
    else:
        name = run.deployment.model if run.deployment is not None else "unknown model"
    if run.inventory is not None and run.inventory.by_type:
        main = max(run.inventory.by_type.items(), key=lambda item: item[1].bytes)[0]
        return f"{name} ({run.inventory.format}, mostly {main})"
    return name


def machine_text(run: RunRecords) -> str:
    """The machine in a few words; the benchmark client's where nothing else is known."""
    if run.node is not None:
        parts = [a.name for a in run.node.accelerators] + [run.node.processor]
        return (
            f"{', '.join(parts)}, {format_number(run.node.num_cores, '')} cores, {format_memory(run.node.memory_bytes)}"
        )
    if run.is_attached:
        return "a machine that was not seen"
    return "a machine that was not recorded"


def repeat_section(run: RunRecords) -> Section:
    """The chapter that lets a reader do it again."""
    blocks: list[Block] = []
    if run.recipe_text is not None:
        blocks.append(
            Code(title=f"The recipe, as it was resolved: {RECIPE_FILE}", text=run.recipe_text.strip(), language="yaml")
        )
    else:
        reason = "the server was not started from one" if run.is_attached else f"the run folder holds no {RECIPE_FILE}"
        blocks.append(Text(text=f"Recipe: {reason}.", is_missing=True))
    blocks.append(Code(title="Commands", text=_commands(run), language="sh"))
    process = run.deployment.process if run.deployment is not None else None
    if process is not None:
        environment = [f"{name}={shlex.quote(_without_folders(value))}" for name, value in process.env.items()]
        command = " ".join([*environment, *(shlex.quote(_without_folders(word)) for word in process.argv)])
        title = "The engine, as it was started; folders of that machine are left out"
        blocks.append(Code(title=title, text=command, language="sh"))
    blocks.append(_versions(run))
    blocks.append(_machine(run))
    blocks += _configuration(run)
    blocks += _checkpoint(run)
    return Section(
        slug="repeat",
        title="How to repeat it",
        lead="The recipe, the commands, the versions and the hashes of everything that went in.",
        blocks=tuple(blocks),
    )


def _without_folders(word: str) -> str:
    """A word of a command line with the base names of its paths: a report may be shown to anybody, a home may not."""
    return _FOLDERS.sub("", word)


def _commands(run: RunRecords) -> str:
    lines = []
    if run.journey is not None:
        lines.append(run.journey.command)
    elif run.is_attached and run.deployment is not None:
        lines.append(f"freehold up --attach {shlex.quote(run.deployment.base_url)}")
    elif run.recipe_text is not None:
        lines.append(f"freehold up {RECIPE_FILE}")
    if run.bench is not None and run.bench.command not in lines:
        lines.append(run.bench.command)
    return "\n".join(lines) or f"# {DASH} no command was recorded"


def _versions(run: RunRecords) -> Facts:
    items: list[tuple[str, Cell]] = []
    if run.journey is not None:
        items.append(("freehold", run.journey.version))
    if run.deployment is not None:
        version = run.deployment.engine_version or f"{DASH} the server did not say"
        items.append((run.deployment.engine, version))
    if run.node is not None:
        items.append(("Python", run.node.python))
        items += sorted(item for item in run.node.libraries.items() if item not in items)
    return Facts(slug="versions", caption="Versions", items=tuple(items) or (("versions", f"{DASH} none recorded"),))


def _machine(run: RunRecords) -> Facts:
    items: list[tuple[str, Cell]] = []
    node, state = run.node, run.node_state
    if node is not None:
        items += [
            ("name", node.name),
            ("system", f"{node.system}, {node.machine}"),
            ("processor", node.processor),
            ("cores", format_number(node.num_cores, "")),
            ("memory", format_memory(node.memory_bytes)),
        ]
        items += [("accelerator", _accelerator_text(a)) for a in node.accelerators]
    else:
        items.append(("machine", f"{DASH} {run.why_missing(Stage.NODE)}"))
    if state is not None:
        items += [
            (
                "free memory before the start",
                Cited(name="free memory before the start", evidence=state.free_memory_bytes),
            ),
            ("swap in use", Cited(name="swap in use", evidence=state.swap_used_bytes)),
            ("free disk", Cited(name="free disk", evidence=state.free_disk_bytes)),
        ]
    if run.bench is not None:
        items += [(f"client: {name.replace('_', ' ')}", value) for name, value in run.bench.node.items()]
        items.append(("benchmark started", run.bench.started_at))
        items.append(("benchmark took", format_number(run.bench.wall_s, "s")))
    return Facts(slug="machine", caption="Machine", items=tuple(items))


def _accelerator_text(accelerator: Accelerator) -> str:
    parts = [accelerator.name]
    if accelerator.memory_bytes is not None:
        parts.append(format_memory(accelerator.memory_bytes))
    if accelerator.compute_capability is not None:
        parts.append(f"compute capability {accelerator.compute_capability}")
    if accelerator.driver is not None:
        parts.append(f"driver {accelerator.driver}")
    return ", ".join(parts)


def _configuration(run: RunRecords) -> list[Block]:
    deployment = run.deployment
    if deployment is None:
        return [Text(text=run.missing_text(Stage.DEPLOYMENT, "Launch"), is_missing=True)]
    names = sorted({*deployment.requested, *deployment.effective})
    rows = tuple(
        Row(cells=(name, deployment.requested.get(name, DASH), deployment.effective.get(name, DASH))) for name in names
    )
    blocks: list[Block] = [
        Facts(
            slug="server",
            caption="Server",
            items=(
                ("origin", deployment.origin),
                ("address", deployment.base_url),
                ("model name", deployment.model),
                ("ready after", Cited(name="launch until the first completion", evidence=deployment.ready_s)),
            ),
        )
    ]
    if rows:
        columns = (
            Column(title="option"),
            Column(title="requested", is_code=True),
            Column(title="effective", is_code=True),
        )
        caption = "Configuration: what was asked for and what the engine took"
        blocks.append(Table(slug="configuration", caption=caption, columns=columns, groups=(RowGroup(rows=rows),)))
    return blocks + [Text(text=note) for note in deployment.notes]


def _checkpoint(run: RunRecords) -> list[Block]:
    inventory = run.inventory
    if inventory is None:
        return [Text(text=run.missing_text(Stage.INVENTORY, "Checkpoint inventory"), is_missing=True)]
    files = tuple(
        Row(cells=(f.name, format_number(f.bytes, "bytes_disk"), f.sha256 or f"{DASH} not hashed"))
        for f in inventory.files
    )
    types = tuple(
        Row(cells=(name, format_number(total.num_tensors, ""), format_memory(total.bytes)))
        for name, total in sorted(inventory.by_type.items(), key=lambda item: -item[1].bytes)
    )
    return [
        Table(
            slug="checkpoint-files",
            caption=f"Checkpoint files of {inventory.source}",
            columns=(
                Column(title="file"),
                Column(title="size", is_numeric=True),
                Column(title="sha256", is_code=True),
            ),
            groups=(RowGroup(rows=files),),
            notes=(
                f"{plural(inventory.num_tensors, 'tensor')}, {format_memory(inventory.tensor_bytes)} of payload",
                f"sha256 of the headers: {inventory.header_sha256}",
                *inventory.notes,
            ),
        ),
        Table(
            slug="checkpoint-types",
            caption="Storage types, read from the tensors themselves",
            columns=(
                Column(title="type"),
                Column(title="tensors", is_numeric=True),
                Column(title="bytes", is_numeric=True),
            ),
            groups=(RowGroup(rows=types),),
        ),
    ]

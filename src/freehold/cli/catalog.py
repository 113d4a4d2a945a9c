"""``freehold catalog``: what can be planned for without having it.

Does not do: reading the catalogue (``hardware/catalogue.py``, ``models/catalogue.py``).
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from freehold.cli.catalogues import UserFiles
    from freehold.hardware.catalogue import Hardware
    from freehold.models.catalogue import CatalogueModel
    from freehold.records.catalogue import Fact

__all__ = ["CatalogAction", "catalog"]


class CatalogAction(StrEnum):
    """What to do with the catalogue."""

    LIST = "list"
    SHOW = "show"


def catalog(
    action: Annotated[
        CatalogAction, typer.Argument(help="`list` everything, or `show` one entry.")
    ] = CatalogAction.LIST,
    name: Annotated[
        str | None, typer.Argument(help="Hardware or model to show, such as dgx-spark.", show_default=False)
    ] = None,
    catalogue: Annotated[
        Path | None,
        typer.Option(
            help="Folder with your own hardware.toml and models/*.toml, which lie over ours.",
            envvar="FREEHOLD_CATALOGUE",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show the hardware and the models that can be planned without having them."""
    from freehold.cli.catalogues import user_files
    from freehold.errors import InputError

    files = user_files(catalogue)
    if action is CatalogAction.LIST:
        if name is not None:
            raise InputError(
                f"`list` takes no name, and got {name!r}",
                why="it shows everything",
                fix=f"`freehold catalog show {name}` shows one entry",
            )
        _list(files, as_json=as_json)
    else:
        if name is None:
            raise InputError(
                "nothing to show",
                why="`show` needs the name of an entry",
                fix="`freehold catalog list` shows all names",
            )
        _show(name, files, as_json=as_json)


def _list(files: UserFiles, *, as_json: bool) -> None:
    from freehold.cli.render import write_json
    from freehold.hardware.catalogue import hardware_catalogue
    from freehold.models.catalogue import instantiate, model_catalogue

    machines = list(hardware_catalogue(files.hardware).values())
    models = [instantiate(entry) for entry in model_catalogue(files.models).values()]
    if as_json:
        write_json({"hardware": [_plain_hardware(h) for h in machines], "models": [_plain_model(m) for m in models]})
        return
    rows = [("hardware", "memory", "bandwidth", "title")]
    rows += [(h.name, h.fact("memory", "labelled").text, h.fact("bandwidth").text, h.title) for h in machines]
    lines = [*_table(rows), "", *_table([("model", "tensors", "payload", "title"), *map(_model_row, models)])]
    _write(lines)


def _model_row(model: CatalogueModel) -> tuple[str, str, str, str]:
    from freehold.units import format_disk

    inventory = model.inventory
    return model.entry.name, f"{inventory.num_tensors:,}", format_disk(inventory.tensor_bytes), model.entry.title


def _show(name: str, files: UserFiles, *, as_json: bool) -> None:
    from freehold.cli.render import write_json
    from freehold.errors import InputError
    from freehold.hardware.catalogue import find_hardware, hardware_catalogue
    from freehold.models.catalogue import find_model, instantiate, model_catalogue
    from freehold.records.catalogue import nearest

    machines, models = hardware_catalogue(files.hardware), model_catalogue(files.models)
    base = name.partition(":")[0].lower()
    if base in {n.lower() for h in machines.values() for n in (h.name, *h.aliases)}:
        machine = find_hardware(name, machines)
        if as_json:
            write_json(_plain_hardware(machine))
        else:
            _write([f"{machine.name} · {machine.title}", *_notes(machine.notes), "", *_fact_lines(machine.facts)])
        return
    if base not in {n.lower() for m in models.values() for n in (m.name, *m.aliases)}:
        near = nearest(base, [*machines, *models])
        raise InputError(
            f"nothing in the catalogue is called {name!r}",
            why=f"it has {len(machines)} kinds of hardware and {len(models)} models",
            fix=f"did you mean `{near}`? `freehold catalog list` shows all"
            if near
            else "`freehold catalog list` shows all",
        )
    model = instantiate(*find_model(name, models))
    if as_json:
        write_json(_plain_model(model))
    else:
        _write(_model_lines(model))


def _model_lines(model: CatalogueModel) -> Iterator[str]:
    import textwrap

    from freehold.cli.render import sanitize
    from freehold.units import format_bytes, format_disk, format_memory

    inventory = model.inventory
    yield f"{model.entry.name} · {model.entry.title}"
    yield (
        f"{inventory.num_tensors:,} tensors · {format_bytes(inventory.tensor_bytes)} · "
        f"{format_disk(inventory.tensor_bytes)} · {format_memory(inventory.tensor_bytes)}"
    )
    for parameter in model.entry.parameters:
        allowed = ", ".join(f"{v:,}" for v in parameter.allowed)
        yield f"{parameter.name} = {model.values[parameter.name]:,}; possible are {allowed}"
    yield from _notes(inventory.notes)
    yield ""
    rows = [("role", "tensors", "bytes", "size")]
    for role, total in inventory.by_role.items():
        rows.append((role, f"{total.num_tensors:,}", f"{total.bytes:,}", format_memory(total.bytes)))
    yield from _table(rows, right=(1, 2, 3))
    yield ""
    yield from _fact_lines(model.entry.facts)
    for row in model.entry.published:
        measured = f"measured by others: {row['value']:g} tok/s on {row['nodes']}× {row['hardware']}, {row['config']}"
        yield from textwrap.wrap(sanitize(measured), 100, subsequent_indent="  ")
        yield f"  {row['kind']}, {row['checked']}: {sanitize(str(row['source']))}"


def _fact_lines(facts: Sequence[Fact]) -> Iterator[str]:
    import textwrap

    from freehold.cli.render import sanitize

    for fact in facts:
        name = f"{fact.name} ({fact.basis})" if fact.basis else fact.name
        stated = f"{name.replace('_', ' ')}: {sanitize(fact.evidence.text)}"
        yield from textwrap.wrap(stated, 100, subsequent_indent="  ")
        said = f"{fact.evidence.kind}, {fact.evidence.date}: {fact.evidence.source}"
        text = sanitize(f"{said}; {fact.note}" if fact.note else said)
        yield from textwrap.wrap(text, 96, initial_indent="  ", subsequent_indent="    ")


def _notes(notes: Sequence[str]) -> Iterator[str]:
    import textwrap

    from freehold.cli.render import sanitize

    for note in notes:
        yield from textwrap.wrap(sanitize(note), 96, initial_indent="note: ", subsequent_indent="      ")


def _table(rows: Sequence[Sequence[str]], right: Sequence[int] = (1, 2)) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        yield "  ".join(cells).rstrip()


def _plain_fact(fact: Fact) -> dict[str, Any]:
    from freehold.records.base import to_plain

    return {"name": fact.name, "basis": fact.basis, "note": fact.note, **to_plain(fact.evidence)}


def _plain_hardware(machine: Hardware) -> dict[str, Any]:
    return {
        "name": machine.name,
        "title": machine.title,
        "aliases": list(machine.aliases),
        "is_unified": machine.is_unified,
        "accelerators_per_node": machine.accelerators_per_node,
        "compute_capability": machine.compute_capability,
        "notes": list(machine.notes),
        "facts": [_plain_fact(f) for f in machine.facts],
    }


def _plain_model(model: CatalogueModel) -> dict[str, Any]:
    from freehold.records.base import to_plain

    inventory = model.inventory
    return {
        "name": model.entry.name,
        "title": model.entry.title,
        "aliases": list(model.entry.aliases),
        "parameters": [
            {"name": p.name, "value": model.values[p.name], "allowed": list(p.allowed)} for p in model.entry.parameters
        ],
        "num_tensors": inventory.num_tensors,
        "tensor_bytes": inventory.tensor_bytes,
        "by_role": {role: total.bytes for role, total in inventory.by_role.items()},
        "architecture": to_plain(inventory.architecture),
        "notes": list(inventory.notes),
        "facts": [_plain_fact(f) for f in model.entry.facts],
    }


def _write(lines: Sequence[str] | Iterator[str]) -> None:
    import sys

    sys.stdout.flush()
    sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode())
    sys.stdout.buffer.flush()

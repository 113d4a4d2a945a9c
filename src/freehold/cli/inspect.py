"""``freehold inspect``: what a checkpoint is made of.

Does not do: reading or adding up (``models/``).
"""

from __future__ import annotations

import sys
import textwrap
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freehold.records.inventory import Architecture, Inventory

__all__ = ["Grouping", "inspect"]


class Grouping(StrEnum):
    """What the table's rows are."""

    ROLE = "role"
    TYPE = "type"
    LAYER = "layer"
    FILE = "file"


def inspect(
    target: Annotated[
        str,
        typer.Argument(
            metavar="PATH|hf:OWNER/REPO",
            help="A checkpoint's folder or file, or a repository: hf:OWNER/REPO[@REVISION][:FILE].",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the inventory as JSON.")] = False,
    with_tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
    by: Annotated[Grouping, typer.Option(help="What to add up by.")] = Grouping.ROLE,
) -> None:
    """Show what a checkpoint is made of, from its headers alone."""
    inventory = _read(target, is_quiet=as_json)
    if as_json:
        from freehold.models.inventory import inventory_json

        _write(inventory_json(inventory, with_tensors=with_tensors))
    elif with_tensors:
        _write("".join(_tensor_lines(inventory)).encode())
    else:
        _show(inventory, by)


def _read(target: str, *, is_quiet: bool) -> Inventory:
    from freehold.errors import InputError
    from freehold.models.inventory import read_inventory, read_remote_inventory
    from freehold.models.source import parse_source

    source = parse_source(target)
    if source.path is not None:
        return read_inventory(source.path)
    if source.repo is None:
        raise InputError(
            f"{source.text} is a package, which can only be inspected once it is here",
            why="a wheel's content cannot be read in pieces",
            fix="`freehold up` fetches the model of a recipe; then inspect the file it names",
        )
    from freehold.cli.stages import StageDisplay

    with StageDisplay(is_quiet=is_quiet) as listener:
        return read_remote_inventory(source.repo, source.revision, file=source.file, listener=listener)


def _show(inventory: Inventory, by: Grouping) -> None:
    from freehold.cli.render import sanitize, terminal_width
    from freehold.models.summary import bits_per_weight, count_weights

    width = terminal_width()
    num_files = f"{len(inventory.files)} files" if len(inventory.files) > 1 else "1 file"
    kind = {"gguf": "GGUF", "safetensors": "safetensors"}[inventory.format]
    facts = list(_facts(inventory.architecture))
    weights, bits = count_weights(inventory), bits_per_weight(inventory)
    if weights is not None and bits is not None:
        facts.append(f"{weights:,} weights at {bits:.2f} bits")
    lines = [f"{sanitize(inventory.source)} · {kind}, {num_files}"]
    lines += _flow([sanitize(fact) for fact in facts], width)
    lines += ["", *_table(inventory, by, width)]
    if inventory.notes:
        lines.append("")
    for note in inventory.notes:
        lines += textwrap.wrap(
            sanitize(note), width, initial_indent="note: ", subsequent_indent="      ", break_on_hyphens=False
        )
    _write("".join(f"{line}\n" for line in lines).encode())


def _flow(parts: list[str], width: int) -> Iterator[str]:
    """Parts joined by dots, broken only between them."""
    line = ""
    for part in parts:
        joined = f"{line} · {part}" if line else part
        if line and len(joined) > width:
            yield line
            joined = part
        line = joined
    if line:
        yield line


def _table(inventory: Inventory, by: Grouping, width: int) -> Iterator[str]:
    from freehold.cli.render import sanitize
    from freehold.models.summary import group_tensors
    from freehold.units import format_disk, format_memory

    last = "" if by is Grouping.TYPE else "types"
    rows = [(by.value, "tensors", "bytes", "size", "share", last)]
    for group in group_tensors(inventory, by.value):
        types = ", ".join(group.types) if last else ""
        size, share = format_memory(group.bytes), f"{group.share:.1%}"
        rows.append((sanitize(group.name), f"{group.num_tensors:,}", f"{group.bytes:,}", size, share, types))
    total, disk = inventory.tensor_bytes, inventory.file_bytes
    rows.append(("payload", f"{inventory.num_tensors:,}", f"{total:,}", format_memory(total), "100.0%", ""))
    rows.append(("headers, padding", "", f"{disk - total:,}", format_disk(disk - total), "", ""))
    rows.append(("files on disk", "", f"{disk:,}", format_disk(disk), "", ""))
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    middle = sum(widths[1:5]) + 2 * 4
    widths[0] = max(12, min(widths[0], width - middle))
    has_types = widths[0] + middle + 2 + widths[5] <= width
    for position, row in enumerate(rows):
        if position == len(rows) - 3:
            yield "─" * (widths[0] + middle)
        name = (
            row[0]
            if len(row[0]) <= widths[0]
            else f"{row[0][: widths[0] // 2 - 1]}…{row[0][-((widths[0] + 1) // 2) :]}"
        )
        cells = [name.ljust(widths[0]), *(row[column].rjust(widths[column]) for column in range(1, 5))]
        yield "  ".join([*cells, row[5]] if has_types else cells).rstrip()


def _facts(found: Architecture) -> Iterator[str]:
    """What the checkpoint states, in words; nothing that it does not."""
    if found.name is not None:
        yield found.name
    if found.num_layers is not None:
        yield f"{found.num_layers} layers"
    if found.hidden_size is not None:
        yield f"width {found.hidden_size:,}"
    if found.num_heads is not None:
        shared = f" ({found.num_kv_heads} key/value)" if found.num_kv_heads not in (None, found.num_heads) else ""
        yield f"{found.num_heads} heads{shared}" + (f" of {found.head_dim}" if found.head_dim else "")
    if found.kv_lora_rank is not None:
        yield f"MLA {found.kv_lora_rank} + {found.rope_head_dim or 0}"
    if found.sliding_window is not None:
        yield f"window {found.sliding_window:,}"
    if found.num_routed_experts:
        chosen = f", {found.num_experts_per_token} per token" if found.num_experts_per_token else ""
        always = f", {found.num_shared_experts} shared" if found.num_shared_experts else ""
        yield f"{found.num_routed_experts} experts{chosen}{always}"
    if found.vocab_size is not None:
        yield f"vocabulary {found.vocab_size:,}"
    if found.context_tokens is not None:
        yield f"context {found.context_tokens:,} tokens"


def _tensor_lines(inventory: Inventory) -> Iterator[str]:
    from freehold.cli.render import sanitize

    for tensor in inventory.tensors:
        shape = "×".join(map(str, tensor.shape)) or "scalar"
        yield f"{tensor.bytes:>15,}  {tensor.type:<8} {tensor.role:<15} {shape:<18} {sanitize(tensor.name)}\n"


def _write(data: bytes) -> None:
    """Write data to stdout in UTF-8, whatever the locale says."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()

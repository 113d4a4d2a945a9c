"""An inventory as JSON, with or without its tensors.

The same document as the saved record, but written without checking each of some hundred thousand tensors again.

Does not do: reading records back (``records/base.py``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from freehold.records.inventory import Inventory

__all__ = ["inventory_document", "inventory_json"]


def inventory_document(inventory: Inventory, *, with_tensors: bool) -> dict[str, Any]:
    """An inventory as plain values, the same as its saved record, without the cost of checking each tensor again.

    Args:
        inventory: The inventory.
        with_tensors: Whether to list every tensor; without it the key is left out.
    """
    document = {name: getattr(inventory, name) for name in Inventory.__dataclass_fields__ if name != "tensors"}
    document |= {
        "by_role": {key: asdict(total) for key, total in inventory.by_role.items()},
        "by_type": {key: asdict(total) for key, total in inventory.by_type.items()},
        "architecture": _listed_tuples(asdict(inventory.architecture)),
        "files": [asdict(entry) for entry in inventory.files],
        "notes": list(inventory.notes),
    }
    if with_tensors:
        document["tensors"] = [
            {
                "name": t.name,
                "role": str(t.role),
                "type": t.type,
                "shape": list(t.shape),
                "bytes": t.bytes,
                "shard": t.shard,
                "layer": t.layer,
            }
            for t in inventory.tensors
        ]
    return document


def inventory_json(inventory: Inventory, *, with_tensors: bool) -> bytes:
    """An inventory as UTF-8 JSON with a final newline, one tensor per line."""
    document = inventory_document(inventory, with_tensors=with_tensors)
    tensors = document.pop("tensors", None)
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    if tensors is not None:
        lines = ",\n".join(f"  {json.dumps(tensor, ensure_ascii=False)}" for tensor in tensors)
        text = f'{text[:-2]},\n "tensors": [\n{lines}\n ]\n}}'
    return (text + "\n").encode()


def _listed_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

"""What is planned: a catalogue model, or a checkpoint that was read, seen the same way.

A catalogue model brings published totals, prices and the size of its recurrent state; a checkpoint brings what its
headers say, and what they do not say is named. Read :class:`Subject`.

Does not do: reading either (``models/``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from freehold.evidence import Evidence
from freehold.models.catalogue import CatalogueModel
from freehold.models.context_items import ContextItem, items_of_inventory
from freehold.records.catalogue import Fact
from freehold.records.inventory import Inventory

__all__ = ["Subject"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model to plan for.

    Args:
        name: What to call it.
        inventory: Its tensors.
        context_items: What a token and a sequence leave in memory.
        missing: Why the size of some context is not known; "" where all is known.
        notes: What else to know, one sentence each.
        model: The catalogue model it is; None for a checkpoint.
    """

    name: str
    inventory: Inventory
    context_items: tuple[ContextItem, ...]
    missing: str = ""
    notes: tuple[str, ...] = ()
    model: CatalogueModel | None = None

    @staticmethod
    def of_model(model: CatalogueModel) -> Subject:
        """A catalogue model as a subject."""
        name = model.inventory.source.removeprefix("catalogue:")
        return Subject(name=name, inventory=model.inventory, context_items=model.context_items, model=model)

    @staticmethod
    def of_inventory(inventory: Inventory) -> Subject:
        """A checkpoint that was read as a subject."""
        known = items_of_inventory(inventory)
        return Subject(
            name=inventory.source,
            inventory=inventory,
            context_items=known.items,
            missing=known.missing,
            notes=known.notes,
        )

    def fact(self, name: str, basis: str | None = None) -> Evidence:
        """A published fact, or not measured; a checkpoint has none.

        Args:
            name: Which quantity.
            basis: In which sense.
        """
        if self.model is None:
            return Evidence.not_measured(f"only catalogue models have a {name.replace('_', ' ')}")
        return self.model.fact(name, basis)

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Every published fact."""
        return () if self.model is None else self.model.entry.facts

    @property
    def published(self) -> tuple[Mapping[str, Any], ...]:
        """Speeds that others measured; none where other parameters than the published ones are chosen."""
        return self.model.entry.published if self.model is not None and self.model.is_published else ()

    @property
    def payload(self) -> Evidence:
        """Bytes of all tensors: they feed memory and node counts."""
        published = self.fact("tensor_bytes")
        if not published.is_missing:
            return published
        where = "dimensions of" if self.model is not None else "headers of"
        return Evidence.verified(
            self.inventory.tensor_bytes, "bytes_disk", source=f"{where} {self.inventory.source}, all tensors"
        )

    @property
    def file_bytes(self) -> Evidence:
        """Bytes of the files: they feed disk and download."""
        published = self.fact("file_bytes")
        if not published.is_missing:
            return published
        if self.model is not None:
            return Evidence.assumed(
                self.inventory.tensor_bytes, "bytes_disk", source="the tensors; headers and padding are not known"
            )
        return Evidence.verified(self.inventory.file_bytes, "bytes_disk", source="sizes of the files")

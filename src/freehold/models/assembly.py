"""Puts the headers of a checkpoint's files together into one inventory.

Read :func:`read_store`: it reads every header, has the shards compared with one another, assigns roles and adds up.
What is odd but usable ends as a note of one sentence.

Does not do: choosing the files (``checkpoint.py``), or knowing whether they are here or on a hub.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

from freehold.errors import CheckpointError
from freehold.models.architecture import CONFIG_FILES, Facts, read_config_facts, read_gguf_facts
from freehold.models.bytesource import ByteSource, read_whole, shown
from freehold.models.checkpoint import CheckpointFiles, Store
from freehold.models.formats import RawTensor, gguf_formats
from freehold.models.gguf import read_gguf
from freehold.models.roles import Placement, assign_roles
from freehold.models.safetensors import read_safetensors
from freehold.models.shards import Index, join_gguf, join_safetensors, parse_index
from freehold.progress import Listener, Progress, ignore
from freehold.records.inventory import Architecture, FileEntry, GroupTotal, Inventory, Role, Tensor

__all__ = ["read_store"]

_MAX_TEXT_BYTES = 64 * 2**20  # an index of 100,000 tensors takes 10 MB
_LABEL = re.compile(
    r"(?<![A-Za-z0-9])((?:I?Q|TQ|BF|F|MXFP|NVFP)[0-9]{1,2}(?:_?(?:K|S|XS|XXS|M|NL|0|1))?)(?![A-Za-z0-9])"
)

T = TypeVar("T")


def read_store(store: Store, files: CheckpointFiles, *, source: str, listener: Listener = ignore) -> Inventory:
    """Read the headers of a checkpoint's files and put them together.

    Args:
        store: Where the files are.
        files: Which ones.
        source: What to record as the source.
        listener: Told which file is read.
    """
    index = None
    shards = files.shards
    if files.index is not None:
        index = parse_index(files.index, _read_text(store, files.index))
        shards = index.shards
        _check_present(store, shards, index)
    if files.format == "gguf":
        content = _read_gguf_shards(store, shards, listener)
    else:
        content = _read_safetensors_shards(store, shards, index, listener)
    if not content.tensors:
        raise CheckpointError(
            f"{shown(shards[0])} holds no tensors",
            why="it has a valid header, but nothing behind it; vocabulary-only files look like that",
            fix="name the file that holds the weights",
        )
    return _assemble(store, files, shards, content, source)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """What the headers of one checkpoint add up to."""

    tensors: Sequence[tuple[RawTensor, int]]
    facts: Facts
    header_sha256: str
    notes: Sequence[str]


def _read_gguf_shards(store: Store, shards: Sequence[str], listener: Listener) -> _Content:
    headers = list(_read_each(store, shards, read_gguf, listener))
    joined, notes = join_gguf(shards, headers)
    facts = read_gguf_facts(headers[0].metadata, [tensor for tensor, _ in joined])
    return _Content(
        tensors=joined, facts=facts, header_sha256=_combine([h.header_sha256 for h in headers]), notes=notes
    )


def _read_safetensors_shards(store: Store, shards: Sequence[str], index: Index | None, listener: Listener) -> _Content:
    texts = {name: _read_text(store, name) for name in CONFIG_FILES if store.size_by_name.get(name)}
    headers = list(_read_each(store, shards, read_safetensors, listener))
    joined, notes = join_safetensors(shards, headers, index)
    facts = read_config_facts(texts, [tensor for tensor, _ in joined])
    return _Content(
        tensors=joined, facts=facts, header_sha256=_combine([h.header_sha256 for h in headers]), notes=notes
    )


def _read_each(store: Store, names: Sequence[str], read: Callable[[ByteSource], T], listener: Listener) -> Iterator[T]:
    """Headers of all files, in order; several at once where the store gains from it."""

    def read_one(name: str) -> T:
        with closing(store.open(name)) as file:
            return read(file)

    if store.max_parallel == 1 or len(names) == 1:
        results: Iterator[T] = map(read_one, names)
        for done, result in enumerate(results, 1):
            _tell(listener, done, len(names))
            yield result
        return
    with ThreadPoolExecutor(min(store.max_parallel, len(names))) as pool:
        try:
            for done, result in enumerate(pool.map(read_one, names), 1):
                _tell(listener, done, len(names))
                yield result
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _tell(listener: Listener, done: int, total: int) -> None:
    listener(Progress(stage="inspect", message="reading headers", done=done, total=total, unit="files"))


def _assemble(store: Store, files: CheckpointFiles, shards: Sequence[str], content: _Content, source: str) -> Inventory:
    facts = content.facts
    placements = assign_roles(
        [tensor.name for tensor, _ in content.tensors],
        form=files.format,
        family=facts.family,
        num_layers=facts.num_layers,
    )
    by_role: dict[str, list[int]] = {}
    by_type: dict[str, list[int]] = {}
    tensors = []
    for (raw, shard), placement in zip(content.tensors, placements, strict=True):
        for totals, key in ((by_role, placement.role), (by_type, raw.type)):
            total = totals.get(key)
            if total is None:
                totals[key] = [raw.bytes, 1]
            else:
                total[0] += raw.bytes
                total[1] += 1
        tensors.append(
            Tensor(
                name=raw.name,
                role=placement.role,
                type=raw.type,
                shape=raw.shape,
                bytes=raw.bytes,
                shard=shard,
                layer=placement.layer,
            )
        )
    is_tied, tied_notes = _judge_tie(facts, by_role)
    sizes = [store.size_by_name[name] for name in shards]
    notes = [
        *files.notes,
        *content.notes,
        *facts.notes,
        *tied_notes,
        *_placement_notes(content.tensors, placements, facts, by_role),
        *_label_notes(files, shards, by_type),
    ]
    return Inventory(
        source=source,
        format=files.format,
        tensor_bytes=sum(total[0] for total in by_role.values()),
        file_bytes=sum(sizes),
        num_tensors=len(tensors),
        by_role=_totals(by_role, [role for role in Role if role in by_role]),
        by_type=_totals(by_type, sorted(by_type, key=lambda name: (-by_type[name][0], name))),
        architecture=Architecture(**{**facts.fields, "tied_embeddings": is_tied}),
        files=tuple(FileEntry(name=name, bytes=size) for name, size in zip(shards, sizes, strict=True)),
        header_sha256=content.header_sha256,
        notes=tuple(notes),
        tensors=tuple(tensors),
    )


def _totals(totals: Mapping[str, list[int]], order: Sequence[str]) -> dict[str, GroupTotal]:
    return {str(key): GroupTotal(bytes=totals[key][0], num_tensors=totals[key][1]) for key in order}


def _judge_tie(facts: Facts, by_role: Mapping[str, list[int]]) -> tuple[bool | None, list[str]]:
    """Whether the output head shares the embedding's bytes."""
    has_head, has_embedding = Role.OUTPUT_HEAD in by_role, Role.TOKEN_EMBD in by_role
    if has_head and facts.is_tied:
        return True, ["an output head is stored although the configuration ties it to the embedding"]
    if has_head:
        return False, []
    if not has_embedding or not facts.is_generative:
        return None, []
    if facts.is_tied is False:
        return None, ["no output head is stored, and the configuration says that it is not the embedding"]
    return True, ["the output head is tied: it is the embedding, stored once"]


def _placement_notes(
    tensors: Sequence[tuple[RawTensor, int]],
    placements: Sequence[Placement],
    facts: Facts,
    by_role: Mapping[str, list[int]],
) -> Iterator[str]:
    unknown = [raw for (raw, _), placement in zip(tensors, placements, strict=True) if not placement.is_known]
    if unknown:
        size = sum(raw.bytes for raw in unknown)
        yield (
            f"{len(unknown):,} tensors with {size:,} bytes have names that the role table does not know, such as"
            f" {shown(unknown[0].name)}"
        )
    if facts.num_draft_layers:
        stored = "stored" if Role.DRAFT in by_role else "not stored"
        yield (
            f"{facts.num_draft_layers} more {'layers' if facts.num_draft_layers > 1 else 'layer'} for drafting tokens"
            f" beside the {facts.num_layers} counted, {stored}"
        )


def _label_notes(files: CheckpointFiles, shards: Sequence[str], by_type: Mapping[str, list[int]]) -> Iterator[str]:
    """Whether the name of a GGUF file promises a type that does not hold most of its bytes."""
    if files.format != "gguf":
        return
    known = {f.name.replace("_", ""): f.name for f in gguf_formats().values()}
    labels = [known[text] for raw in _LABEL.findall(shards[0].upper()) if (text := raw.replace("_", "")) in known]
    largest = max(by_type, key=lambda name: by_type[name][0])
    if labels and largest not in labels:
        total = sum(size for size, _ in by_type.values())
        share, promised = by_type[largest][0] / total, by_type.get(labels[-1], [0, 0])[0] / total
        yield (
            f"the file's name says {labels[-1]}, which holds {promised:.0%} of the bytes; {largest} holds {share:.0%}"
        )


def _check_present(store: Store, shards: Sequence[str], index: Index) -> None:
    missing = [name for name in shards if name not in store.size_by_name]
    if missing:
        raise CheckpointError(
            f"{len(missing)} of {len(shards)} shards are missing: {', '.join(map(shown, missing[:4]))}"
            + (" …" if len(missing) > 4 else ""),
            why=f"{shown(index.name)} lists them, {shown(store.place)} does not hold them",
            fix="download the missing files into the same folder",
            facts={"missing": missing},
        )


def _read_text(store: Store, name: str) -> bytes:
    with closing(store.open(name)) as file:
        return read_whole(file, limit_bytes=_MAX_TEXT_BYTES)


def _combine(hashes: Sequence[str]) -> str:
    """One hash over the headers: that of a single file itself, else of the hashes' lines in order."""
    if len(hashes) == 1:
        return hashes[0]
    return hashlib.sha256("".join(f"{h}\n" for h in hashes).encode()).hexdigest()

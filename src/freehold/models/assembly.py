"""Puts the headers of a checkpoint's files together into one inventory.

Read :func:`read_store`: it reads every header, has the shards compared with one another, assigns roles and adds up.
What is odd but usable ends as a note of one sentence.

Does not do: choosing the files (``checkpoint.py``), or knowing whether they are here or on a hub.
"""

from __future__ import annotations

import gc
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from freehold.errors import CheckpointError
from freehold.models.architecture import CONFIG_FILES, Facts, read_config_facts, read_gguf_facts
from freehold.models.bytesource import ByteSource, read_whole, shown
from freehold.models.checkpoint import CheckpointFiles, Store
from freehold.models.formats import RawTensor, gguf_formats
from freehold.models.gguf import read_gguf
from freehold.models.roles import assign_roles
from freehold.models.safetensors import read_safetensors
from freehold.models.shards import Index, join_gguf, join_safetensors, parse_index, require_shards
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
        require_shards(index, store.size_by_name, store.place)
    with _uncollected():
        if files.format == "gguf":
            content = _read_gguf_shards(store, shards, listener)
        else:
            content = _read_safetensors_shards(store, shards, index, listener)
        if not any(content.tensors_by_shard):
            raise CheckpointError(
                f"{shown(shards[0])} holds no tensors",
                why="it has a valid header, but nothing behind it; vocabulary-only files look like that",
                fix="name the file that holds the weights",
            )
        return _assemble(store, files, shards, content, source)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the garbage collector from running.

    Reading makes up to a million objects, all of them kept and none in a cycle. The collector would walk over them
    again and again, which took longer than the reading itself.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """What the headers of one checkpoint say."""

    tensors_by_shard: Sequence[Sequence[RawTensor]]
    facts: Facts
    header_sha256: str
    notes: Sequence[str]


def _read_gguf_shards(store: Store, shards: Sequence[str], listener: Listener) -> _Content:
    headers = list(_read_each(store, shards, read_gguf, listener))
    notes = join_gguf(shards, headers)
    tensors = [header.tensors for header in headers]
    return _Content(
        tensors_by_shard=tensors,
        facts=read_gguf_facts(headers[0].metadata, chain.from_iterable(tensors)),
        header_sha256=_combine([h.header_sha256 for h in headers]),
        notes=notes,
    )


def _read_safetensors_shards(store: Store, shards: Sequence[str], index: Index | None, listener: Listener) -> _Content:
    texts = {name: _read_text(store, name) for name in CONFIG_FILES if name in store.size_by_name}
    headers = list(_read_each(store, shards, read_safetensors, listener))
    notes = join_safetensors(shards, headers, index)
    tensors = [header.tensors for header in headers]
    return _Content(
        tensors_by_shard=tensors,
        facts=read_config_facts(texts, chain.from_iterable(tensors)),
        header_sha256=_combine([h.header_sha256 for h in headers]),
        notes=notes,
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
    from concurrent.futures import ThreadPoolExecutor

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
        (raw.name for raws in content.tensors_by_shard for raw in raws),
        form=files.format,
        family=facts.families,
        num_layers=facts.num_layers,
    )
    make_tensor = _tensor_maker()
    tensors: list[Tensor] = []
    unknown: list[RawTensor] = []
    by_role: dict[str, list[int]] = {}
    by_type: dict[str, list[int]] = {}
    cells: dict[tuple[str, str], list[int]] = {}  # bytes and count per role and type
    of_all = iter(placements)
    for shard, raws in enumerate(content.tensors_by_shard):
        for raw, placement in zip(raws, of_all, strict=False):
            name, kind, shape, size, _ = raw
            role = placement.role
            tensors.append(make_tensor(name, role, kind, shape, size, shard, placement.layer))
            cell = cells.get((role, kind))
            if cell is None:
                cell = cells[role, kind] = [0, 0]
            cell[0] += size
            cell[1] += 1
            if not placement.is_known:
                unknown.append(raw)
    for (of_role, of_type), (size, count) in cells.items():
        for totals, key in ((by_role, of_role), (by_type, of_type)):
            total = totals.setdefault(key, [0, 0])
            total[0] += size
            total[1] += count
    is_tied, tied_notes = _judge_tie(facts, by_role)
    sizes = [store.size_by_name[name] for name in shards]
    notes = [
        *files.notes,
        *content.notes,
        *facts.notes,
        *tied_notes,
        *_placement_notes(unknown, facts, by_role),
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


def _tensor_maker() -> Callable[[str, Role, str, tuple[int, ...], int, int, int | None], Tensor]:
    """Makes a :class:`Tensor` in half the time of its constructor, which for a frozen class looks up every field again.

    Half a million tensors make that worth it; a test compares the two.
    """
    create = object.__new__
    fields = ("name", "role", "type", "shape", "bytes", "shard", "layer")
    set_name, set_role, set_type, set_shape, set_bytes, set_shard, set_layer = (
        getattr(Tensor, name).__set__ for name in fields
    )

    def make(
        name: str, role: Role, kind: str, shape: tuple[int, ...], size: int, shard: int, layer: int | None
    ) -> Tensor:
        tensor = create(Tensor)
        set_name(tensor, name)
        set_role(tensor, role)
        set_type(tensor, kind)
        set_shape(tensor, shape)
        set_bytes(tensor, size)
        set_shard(tensor, shard)
        set_layer(tensor, layer)
        return tensor

    return make


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


def _placement_notes(unknown: Sequence[RawTensor], facts: Facts, by_role: Mapping[str, list[int]]) -> Iterator[str]:
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


def _read_text(store: Store, name: str) -> bytes:
    with closing(store.open(name)) as file:
        return read_whole(file, limit_bytes=_MAX_TEXT_BYTES)


def _combine(hashes: Sequence[str]) -> str:
    """One hash over the headers: that of a single file itself, else of the hashes' lines in order."""
    if len(hashes) == 1:
        return hashes[0]
    return hashlib.sha256("".join(f"{h}\n" for h in hashes).encode()).hexdigest()

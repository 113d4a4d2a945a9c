"""Reads the header of one safetensors file: the exact list of its tensors, without touching their data.

The file begins with the length of a JSON header. The length is compared with the file before anything is read for it;
every tensor's bytes are compared with its shape and type, and together they have to cover the data exactly, as the
format demands. Read :func:`read_safetensors`.

Does not do: joining shards (``shards.py``), config files (``architecture.py``), or roles (``roles.py``).

Source: the format section of the safetensors README, and ``Metadata::validate`` of safetensors 0.8.0.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain
from math import prod
from operator import itemgetter, sub
from typing import Any, NoReturn

from freehold.errors import CheckpointError
from freehold.models.bytesource import ByteSource, is_utf8, shown
from freehold.models.formats import RawTensor, safetensors_bits

__all__ = ["SafetensorsHeader", "read_safetensors"]

_MAX_HEADER_BYTES = 100_000_000  # MAX_HEADER_SIZE of the safetensors crate
_MAX_DIMENSIONS = 32  # guess: four times the largest seen
_METADATA = "__metadata__"
_fields_of = itemgetter("dtype", "shape", "data_offsets")
_size_of, _begin_of = itemgetter(3), itemgetter(4)
_by_place = itemgetter(4, 3)  # where its data begins; an empty tensor comes before its neighbour


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetensorsHeader:
    """What one safetensors file says about itself.

    Args:
        tensors: Its tensors in the order of their data.
        header_bytes: Length of the header, its length field included.
        header_sha256: Hash of exactly those bytes.
    """

    tensors: tuple[RawTensor, ...]
    header_bytes: int
    header_sha256: str


def read_safetensors(source: ByteSource) -> SafetensorsHeader:
    """Read the header of one safetensors file and check that the file holds what it promises.

    Args:
        source: The file.

    Returns:
        Its header.

    Raises:
        CheckpointError: The file is no safetensors file, is truncated, contradicts itself, or uses an unknown type.
    """
    name, size = shown(source.name), source.size_bytes
    if size < 8:
        _fail(name, f"{name} is no safetensors file", f"found {size} bytes, a header has at least 8")
    first = source.read(0, min(size, 8 + source.chunk_bytes))
    length = int.from_bytes(first[:8], "little")
    if length > _MAX_HEADER_BYTES:
        _fail(
            name,
            f"{name} is no safetensors file",
            f"its first 8 bytes claim a header of {length:,} bytes, the format allows {_MAX_HEADER_BYTES:,}"
            + _guess_content(first),
        )
    if 8 + length > size:
        _fail(
            name,
            f"{name} is truncated: found {size:,} bytes, expected at least {8 + length:,}",
            f"its first 8 bytes promise a header of {length:,} bytes",
        )
    raw = first[8 : 8 + length]
    if len(raw) < length:
        raw += source.read(8 + len(raw), length - len(raw))
    digest = hashlib.sha256(first[:8])
    digest.update(raw)
    tensors = _parse(name, raw, size - 8 - length)
    return SafetensorsHeader(tensors=tensors, header_bytes=8 + length, header_sha256=digest.hexdigest())


def _parse(name: str, raw: bytes, data_bytes: int) -> tuple[RawTensor, ...]:
    rows = _read_alike(raw)
    if rows is None:
        rows = _read_each(name, raw)
    return _cover(name, rows, data_bytes)


def _read_alike(raw: bytes) -> list[RawTensor] | None:
    """All tensors at once, if every entry has the usual form and its bytes fit its shape; None if one may not.

    The largest checkpoint has half a million tensors of a few dozen types and shapes. Every step here is one pass in C
    over all of them; entry by entry in Python takes three times as long.
    """
    from pydantic_core import from_json  # twice as quick as the standard library, but does not see names given twice

    try:
        document: dict[str, Any] = from_json(raw)
        metadata = document.pop(_METADATA, {})
        num_tensors = len(document)
        if b"\\" in raw or set(map(type, metadata.values())) - {str}:
            return None  # an escape may hide a quotation mark, or half of a character
        num_texts = 5 * num_tensors + bool(metadata) + 2 * len(metadata)
        if raw.count(b'"') != 2 * num_texts:
            return None  # a name or field is there twice, or there is more than the usual fields
        if not num_tensors:
            return []
        kinds, shapes, spans = zip(*map(_fields_of, document.values()), strict=True)
        if set(map(type, chain.from_iterable(chain(shapes, spans)))) - {int}:
            return None  # 1.0 and true compare equal to 1
        pairs = list(zip(kinds, map(tuple, shapes), strict=True))
        begins, ends = zip(*spans, strict=True)
        size_by_pair = {pair: _bytes_of(*pair) for pair in set(pairs)}
        sizes = list(map(size_by_pair.__getitem__, pairs))
        if None in size_by_pair.values() or list(map(sub, ends, begins)) != sizes or min(begins) < 0:
            return None
        shared = {pair: pair[1] for pair in size_by_pair}  # one tuple per shape, not one per tensor
        columns = zip(document, kinds, map(shared.__getitem__, pairs), sizes, begins, strict=True)
        return list(map(partial(tuple.__new__, RawTensor), columns))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _read_each(name: str, raw: bytes) -> list[RawTensor]:
    """Every tensor, one by one and every part checked; says what is wrong with the first that is."""
    try:
        # Objects become tuples of pairs, so that a name given twice is seen and not silently dropped.
        entries: Any = json.loads(raw.decode(), object_pairs_hook=tuple)
    except UnicodeDecodeError as error:
        _fail(
            name, f"the header of {name} is not UTF-8", f"at header byte {error.start:,}: {raw[error.start :][:20]!r}"
        )
    except (ValueError, RecursionError) as error:
        _fail(name, f"the header of {name} is no JSON", f"{error}; it begins with {raw[:30]!r}")
    if type(entries) is not tuple:
        _fail(name, f"the header of {name} is no JSON object", f"it begins with {raw[:30]!r}")
    rows = []
    names: set[str] = set()
    for tensor, entry in entries:
        if tensor in names:
            _fail(name, f"{name} contradicts itself", f"tensor {shown(tensor)} is there twice")
        if not is_utf8(tensor):
            _fail(name, f"a tensor name in {name} is not UTF-8", f"{shown(tensor)} holds half of a surrogate pair")
        names.add(tensor)
        if tensor != _METADATA:
            rows.append(_check_entry(name, tensor, entry))
        elif type(entry) is not tuple or not all(type(value) is str for _, value in entry):
            _fail(name, f"{name} has a broken header", f"{_METADATA} holds something other than texts")
    return rows


def _bytes_of(kind: object, shape: tuple[Any, ...]) -> int | None:
    """Payload of a tensor, None unless type and shape are sound and it fills whole bytes."""
    num_bits = safetensors_bits().get(kind) if isinstance(kind, str) else None
    if num_bits is None or len(shape) > _MAX_DIMENSIONS or not all(type(n) is int and 0 <= n < 2**63 for n in shape):
        return None
    size, rest = divmod(prod(shape) * num_bits, 8)
    return None if rest else size


def _check_entry(name: str, tensor: str, entry: Any) -> RawTensor:
    """One tensor, every part of its entry checked."""
    fields = dict(entry) if type(entry) is tuple else {}
    if not fields.keys() >= {"dtype", "shape", "data_offsets"} or len(fields) != len(entry):
        _fail(
            name,
            f"{name} has a broken header",
            f"the entry of {shown(tensor)} holds {shown(', '.join(fields)) or 'nothing'}, expected"
            " dtype, shape and data_offsets, once each",
        )
    kind, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    num_bits = safetensors_bits().get(kind) if type(kind) is str else None
    if num_bits is None:
        _fail(
            name,
            f"tensor {shown(tensor)} in {name} has the unknown type {shown(str(kind))}",
            f"known types are {', '.join(safetensors_bits())}",
            "update freehold, or check what wrote the file",
        )
    if type(shape) is not list or type(offsets) is not list or len(offsets) != 2 or len(shape) > _MAX_DIMENSIONS:
        _fail(
            name,
            f"{name} has a broken header",
            f"tensor {shown(tensor)} needs a shape of at most {_MAX_DIMENSIONS} sizes and two data_offsets",
        )
    num_elements = 1
    for number in shape:
        if type(number) is not int or not 0 <= number < 2**63:
            _fail(name, f"{name} has a broken header", f"tensor {shown(tensor)} has a size that is no whole number")
        num_elements *= number
    begin, end = offsets
    if type(begin) is not int or type(end) is not int or not 0 <= begin <= end:
        _fail(
            name,
            f"{name} has a broken header",
            f"tensor {shown(tensor)} has data_offsets {shown(str(offsets))}, expected begin and end",
        )
    if num_elements * num_bits != (end - begin) * 8:
        _fail(
            name,
            f"tensor {shown(tensor)} in {name} contradicts itself",
            f"{kind} of shape {shown(str(shape))} takes {shown(_bytes_text(num_elements * num_bits))} bytes,"
            f" its data_offsets hold {end - begin:,}",
        )
    return RawTensor(tensor, kind, tuple(shape), end - begin, begin)


def _cover(name: str, rows: list[RawTensor], data_bytes: int) -> tuple[RawTensor, ...]:
    """The tensors in the order of their data, once it is known that they cover it without hole or overlap."""
    ends = list(accumulate(map(_size_of, rows), initial=0))
    position, previous = ends[-1], rows[-1].name if rows else "the header"
    if list(map(_begin_of, rows)) != ends[:-1]:  # not in the order of their data, or worse
        rows.sort(key=_by_place)
        position, previous = 0, "the header"
        for tensor, _, _, size, begin in rows:
            if begin != position:
                problem = "overlap" if begin < position else "leave a hole"
                _fail(
                    name,
                    f"{name} contradicts itself: {shown(previous)} and {shown(tensor)} {problem}",
                    f"found data offset {begin:,}, expected {position:,}",
                )
            position, previous = position + size, tensor
    if position > data_bytes:
        _fail(
            name,
            f"{name} is truncated: found {data_bytes:,} bytes of data, expected {position:,}",
            f"the header promises tensor {shown(previous)} up to data offset {position:,}",
        )
    if position < data_bytes:
        _fail(
            name,
            f"{name} is longer than its header says: found {data_bytes:,} bytes of data, expected {position:,}",
            "the format allows no bytes after the last tensor",
        )
    return tuple(rows)


def _bytes_text(num_bits: int) -> str:
    whole, rest = divmod(num_bits, 8)
    return f"{whole:,}" if not rest else f"{whole:,} {rest}/8"


def _guess_content(first: bytes) -> str:
    if first.lstrip()[:1] == b"<":
        return "; it looks like a web page"
    if first.startswith(b"version "):
        return "; it looks like a Git LFS pointer, whose file was never fetched"
    if first.startswith(b"GGUF"):
        return "; it looks like a GGUF file"
    if first.startswith(b"PK"):
        return "; it looks like a zip archive or a PyTorch pickle"
    return ""


def _fail(name: str, what: str, why: str, fix: str = "download or copy the file again") -> NoReturn:
    raise CheckpointError(what, why=why, fix=fix, facts={"file": name})

"""Reads the header of one GGUF file: metadata and the exact list of its tensors, without touching their data.

Versions 2 and 3 in both byte orders. Every length and count is compared with the size of the file before anything is
allocated or read for it, and the header as a whole is bounded, so a lying file costs little time and memory. Long
arrays (token lists) are passed over, not kept. Read :func:`read_gguf`.

Does not do: reading tensor data, joining split files (``shards.py``), or knowing what a tensor is for (``roles.py``).

Source: the GGUF specification in ggml's ``docs/gguf.md``, and the gguf package 0.19.0 that writes such files.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NoReturn

from freehold.errors import CheckpointError
from freehold.models.bytesource import ByteSource, shown
from freehold.models.formats import RawTensor, gguf_formats, removed_gguf_types
from freehold.models.window import HeaderWindow

__all__ = ["MAGIC", "GgufHeader", "GgufValue", "Skipped", "read_gguf"]

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32  # GGUF_DEFAULT_ALIGNMENT of the gguf package
_MAX_DIMENSIONS = 4  # GGML_MAX_DIMS of ggml.h

_MAX_HEADER_BYTES = 256 * 2**20  # guess: ten times the largest seen (a vocabulary of 262,144 with its merges)
_MAX_TENSORS = 1_000_000  # guess: hundreds of times the largest seen
_MAX_KEYS = 100_000  # guess: a thousand times the largest seen
_MAX_NAME_BYTES = 1024  # llama.cpp stops at 64
_MAX_KEPT_STRING_BYTES = 4 * 2**20
_MAX_KEPT_NUMBERS = 4096  # per-layer lists are kept, token lists are not
_MAX_NESTING = 4

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_SMALLEST_BYTES = {_STRING: 8, _ARRAY: 12, **{k: struct.calcsize(f"<{v}") for k, v in _SCALARS.items()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A metadata value that was passed over: how many elements or bytes it has."""

    count: int


GgufValue = int | float | bool | str | tuple[int | float | bool, ...] | Skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """What one GGUF file says about itself.

    Args:
        version: Format version.
        byte_order: How its numbers are stored.
        metadata: Every key; long values are :class:`Skipped`.
        tensors: Its tensors, in the file's order.
        header_bytes: Length of the header, the padding after it not included.
        header_sha256: Hash of exactly those bytes.
        stray_bytes: Bytes that belong neither to header, tensors nor alignment.
    """

    version: int
    byte_order: Literal["little", "big"]
    metadata: Mapping[str, GgufValue]
    tensors: tuple[RawTensor, ...]
    header_bytes: int
    header_sha256: str
    stray_bytes: int


def read_gguf(source: ByteSource) -> GgufHeader:
    """Read the header of one GGUF file and check that the file holds what it promises.

    Args:
        source: The file.

    Returns:
        Its header.

    Raises:
        CheckpointError: The file is no GGUF, is truncated, contradicts itself, or uses a type that is not known.
    """
    return _Reader(source).read()


class _Reader:
    """One pass over one header."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._name = shown(source.name)
        self._size = source.size_bytes
        self._window = HeaderWindow(source, max_bytes=_MAX_HEADER_BYTES)
        self._order = "<"

    def _fail(self, what: str, why: str, fix: str = "download or copy the file again") -> NoReturn:
        raise CheckpointError(what, why=why, fix=fix, facts={"file": self._name, "size_bytes": self._size})

    # -- numbers and strings -------------------------------------------------------------------------------------

    def _number(self, code: str) -> int:
        layout = struct.Struct(self._order + code)
        value: int = layout.unpack(self._window.take(layout.size))[0]
        return value

    def _string(self, what: str, limit: int) -> str:
        at = self._window.offset
        length = self._number("Q")
        if length > limit:
            self._fail(
                f"{self._name} has a broken header",
                f"{what} at offset {at:,} claims {length:,} bytes, at most {limit:,} are sane",
            )
        data = self._window.take(length)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            self._fail(
                f"{what} in {self._name} is not UTF-8",
                f"at offset {at + 8:,}: {data[:40]!r}, byte {error.start}",
                "convert the model again; names in GGUF files are UTF-8",
            )

    # -- the parts of a header -----------------------------------------------------------------------------------

    def read(self) -> GgufHeader:
        version = self._read_version()
        num_tensors, num_keys = self._number("Q"), self._number("Q")
        # A tensor takes 24 bytes and a key 13 even with an empty name.
        for count, smallest, most, what in (
            (num_tensors, 24, _MAX_TENSORS, "tensors"),
            (num_keys, 13, _MAX_KEYS, "metadata keys"),
        ):
            if count > most or count * smallest > self._size - self._window.offset:
                self._fail(
                    f"{self._name} has a broken header",
                    f"it claims {count:,} {what} in a file of {self._size:,} bytes",
                )
        metadata = self._read_metadata(num_keys)
        alignment = self._alignment(metadata)
        tensors = self._read_tensors(num_tensors, alignment)
        header_bytes = self._window.offset
        stray_bytes = self._check_data(tensors, header_bytes, alignment)
        return GgufHeader(
            version=version,
            byte_order="big" if self._order == ">" else "little",
            metadata=metadata,
            tensors=tuple(tensors),
            header_bytes=header_bytes,
            header_sha256=self._window.sha256(),
            stray_bytes=stray_bytes,
        )

    def _read_version(self) -> int:
        if self._size < 24:
            self._fail(
                f"{self._name} is no GGUF file",
                f"found {self._size} bytes, a header has at least 24",
                "name a GGUF file, or download it again",
            )
        magic = self._window.take(4)
        if magic != MAGIC:
            self._fail(
                f"{self._name} is no GGUF file",
                f"found {magic!r} at offset 0, expected {MAGIC!r}" + _guess_content(magic),
                "name a GGUF file, or download it again",
            )
        version = self._number("I")
        if version & 0xFFFF == 0 and version:  # no version is that high: the other byte order
            self._order = ">"
            version = int.from_bytes(version.to_bytes(4, "little"), "big")
        if version not in _VERSIONS:
            self._fail(
                f"{self._name} has GGUF version {version}",
                f"versions {_VERSIONS[0]} and {_VERSIONS[1]} are read"
                + ("; version 1 was in use for a few weeks in 2023 and current engines refuse it too" * (version == 1)),
                "convert the model again with a current converter",
            )
        return version

    def _read_metadata(self, count: int) -> dict[str, GgufValue]:
        metadata: dict[str, GgufValue] = {}
        for index in range(count):
            key = self._string(f"the name of metadata key {index:,}", 65_535)
            if key in metadata:
                self._fail(
                    f"{self._name} contradicts itself",
                    f"metadata key {shown(key)} is there twice",
                    "convert the model again",
                )
            metadata[key] = self._value(self._number("I"), key)
        return metadata

    def _value(self, kind: int, key: str) -> GgufValue:
        code = _SCALARS.get(kind)
        if code is not None:
            return self._number(code)
        if kind == _STRING:
            length = self._number("Q")
            if length > _MAX_KEPT_STRING_BYTES:
                self._window.skip(length)
                return Skipped(count=length)
            data = self._window.take(length)
            try:
                return data.decode()
            except UnicodeDecodeError:
                return Skipped(count=length)  # some converters store bytes; only names have to be readable
        if kind != _ARRAY:
            self._fail(
                f"{self._name} has a broken header",
                f"metadata key {shown(key)} has value type {kind}, known types are 0 to 12",
            )
        return self._array(key, 1)

    def _array(self, key: str, depth: int) -> GgufValue:
        kind, count = self._number("I"), self._number("Q")
        smallest = _SMALLEST_BYTES.get(kind)
        if smallest is None:
            self._fail(
                f"{self._name} has a broken header",
                f"metadata key {shown(key)} is an array of type {kind}, known types are 0 to 12",
            )
        if depth > _MAX_NESTING:
            self._fail(
                f"{self._name} has a broken header",
                f"metadata key {shown(key)} nests arrays deeper than {_MAX_NESTING} levels",
            )
        self._window.claim(count * smallest, f"metadata key {shown(key)} with {count:,} elements")
        if kind in _SCALARS:
            layout = f"{self._order}{count}{_SCALARS[kind]}"
            if count <= _MAX_KEPT_NUMBERS:
                return tuple(struct.unpack(layout, self._window.take(count * smallest)))
            self._window.skip(count * smallest)
        elif kind == _STRING:
            self._pass_strings(count)
        else:
            for _ in range(count):
                self._array(key, depth + 1)
        return Skipped(count=count)

    def _pass_strings(self, count: int) -> None:
        """Move over ``count`` strings; the loop runs hundreds of thousands of times for a large vocabulary."""
        unpack = struct.Struct(self._order + "Q").unpack_from
        window = self._window
        while count:
            data, position = window.data, window.position
            last, begun = len(data) - 8, position
            while count and position <= last:
                begun = position
                position += 8 + unpack(data, position)[0]
                count -= 1
            if position <= len(data):
                window.position = position
                if count:
                    window.claim(8)
                    window.refill(8)
            else:  # the last one reaches beyond what is in memory, perhaps beyond the file
                window.position = begun + 8
                window.skip(position - window.position)

    def _alignment(self, metadata: Mapping[str, GgufValue]) -> int:
        value = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if type(value) is not int or value < 1 or value & (value - 1) or value > 2**20:
            self._fail(
                f"{self._name} has a broken header",
                f"general.alignment is {value!r}, expected a power of two",
            )
        return value

    def _read_tensors(self, count: int, alignment: int) -> list[RawTensor]:
        formats = {f.number: (f.name, f.weights_per_block, f.bytes_per_block) for f in gguf_formats().values()}
        read_length = struct.Struct(self._order + "Q").unpack_from
        read_rank = struct.Struct(self._order + "I").unpack_from
        tails = [struct.Struct(f"{self._order}{rank}QIQ") for rank in range(_MAX_DIMENSIONS + 1)]
        room = 8 + _MAX_NAME_BYTES + 4 + tails[-1].size
        window = self._window
        tensors: list[RawTensor] = []
        names: set[str] = set()
        for index in range(count):
            if len(window.data) - window.position < room:
                window.refill(room)
            data, start = window.data, window.position + 8
            try:
                stop = start + read_length(data, start - 8)[0]
                if stop - start > _MAX_NAME_BYTES:
                    self._fail(
                        f"{self._name} has a broken header",
                        f"the name of tensor {index:,} at offset {self._window.offset:,} claims {stop - start:,} bytes",
                    )
                rank = read_rank(data, stop)[0]
                if rank > _MAX_DIMENSIONS:
                    self._fail(
                        f"{self._name} has a broken header",
                        f"tensor {index:,} claims {rank:,} dimensions, at most {_MAX_DIMENSIONS} exist",
                    )
                *shape, kind, offset = tails[rank].unpack_from(data, stop + 4)
                name = data[start:stop].decode()
            except struct.error:
                self._fail(
                    f"{self._name} is truncated",
                    f"it ends at {self._size:,} bytes within its list of tensors: found {index:,}, expected {count:,}",
                )
            except UnicodeDecodeError as error:
                self._fail(
                    f"the name of tensor {index:,} in {self._name} is not UTF-8",
                    f"at offset {window.offset + 8:,}: {data[start:stop][:40]!r}, byte {error.start}",
                    "convert the model again; names in GGUF files are UTF-8",
                )
            window.position = stop + 4 + tails[rank].size
            if window.offset > _MAX_HEADER_BYTES:
                window.claim(0, "the list of tensors")
            found = formats.get(kind)
            if found is None:
                self._fail_type(name, kind)
            type_name, weights_per_block, bytes_per_block = found
            num_weights = 1
            for size in shape:
                num_weights *= size
            if (shape[0] if shape else 1) % weights_per_block:
                self._fail(
                    f"tensor {shown(name)} in {self._name} cannot exist",
                    f"a row of {shape[0] if shape else 1:,} weights is no whole number of {type_name} blocks"
                    f" of {weights_per_block}",
                    "convert the model again",
                )
            if name in names:
                self._fail(
                    f"{self._name} contradicts itself",
                    f"tensor {shown(name)} is there twice",
                    "convert the model again",
                )
            if offset % alignment:
                self._fail(
                    f"tensor {shown(name)} in {self._name} is not aligned",
                    f"its data begins at offset {offset:,}, expected a multiple of {alignment}",
                )
            names.add(name)
            shape.reverse()
            size_bytes = num_weights // weights_per_block * bytes_per_block
            tensors.append(RawTensor(name, type_name, tuple(shape), size_bytes, offset))
        return tensors

    def _fail_type(self, name: str, kind: int) -> NoReturn:
        removed = removed_gguf_types().get(kind)
        if removed is not None:
            self._fail(
                f"tensor {shown(name)} in {self._name} has type {kind} ({removed}), which was removed from GGUF",
                "current engines repack at load time instead and refuse such files",
                "get the model as Q4_0 or IQ4_NL, or convert it again",
            )
        known = gguf_formats()
        self._fail(
            f"tensor {shown(name)} in {self._name} has the unknown type {kind}",
            f"known types end at {max(known)} ({known[max(known)].name}); its size cannot be told",
            "update freehold, or download the file again if it should hold a common type",
        )

    def _check_data(self, tensors: list[RawTensor], header_bytes: int, alignment: int) -> int:
        """Compare what the header promises with what the file has; returns bytes that belong to nothing."""
        if not tensors:
            return 0
        start = -(-header_bytes // alignment) * alignment
        end = padded_end = gaps = 0
        last = None
        for tensor in sorted(tensors, key=_by_offset):
            if tensor.offset < end and tensor.bytes:
                self._fail(
                    f"{self._name} contradicts itself",
                    f"tensors {shown(last.name if last else '')} and {shown(tensor.name)} overlap: the second begins at"
                    f" data offset {tensor.offset:,}, the first ends at {end:,}",
                )
            gaps += max(0, tensor.offset - padded_end)
            end = max(end, tensor.offset + tensor.bytes)
            padded_end = -(-end // alignment) * alignment
            last = tensor
        if start + end > self._size:
            missing = next(t for t in tensors if start + t.offset + t.bytes > self._size)
            self._fail(
                f"{self._name} is truncated: found {self._size:,} bytes, expected {start + end:,}",
                f"the header promises tensor {shown(missing.name)} up to offset"
                f" {start + missing.offset + missing.bytes:,}",
            )
        return gaps + max(0, self._size - start - padded_end)


def _by_offset(tensor: RawTensor) -> tuple[int, int]:
    return tensor.offset, tensor.bytes


def _guess_content(magic: bytes) -> str:
    if magic.lstrip()[:1] == b"<":
        return "; it looks like a web page"
    if magic == b"vers":
        return "; it looks like a Git LFS pointer, whose file was never fetched"
    if magic[:2] == b"PK":
        return "; it looks like a zip archive or a PyTorch pickle"
    if magic == b"\0\0\0\0":
        return "; the file begins with zeros, as an interrupted download does"
    return ""

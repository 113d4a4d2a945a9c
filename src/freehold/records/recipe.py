"""What the user asks for: recipe v1, strict. ``recipes/`` reads and writes it as YAML.

An option nobody knows is an error, never ignored. An engine's own option names appear only under ``options``.

Does not do: reading files, or resolving where a model comes from (``models/source.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from freehold.records.base import record

__all__ = [
    "BenchRequest",
    "EndpointRequest",
    "EngineRequest",
    "LayoutRequest",
    "OptionValue",
    "Recipe",
    "VerifyRequest",
]

OptionValue = bool | int | float | str


@record
class EngineRequest:
    """Which engine serves it.

    Args:
        name: An engine of ``engines/``, such as ``llama.cpp``.
        version: Exact version to insist on; None takes what is installed and records it.
        runtime: How it is run: ``embedded`` (the Python package) or a path to the engine's server program.
    """

    name: str
    version: str | None = None
    runtime: str = "embedded"


@record
class LayoutRequest:
    """How the model is split; all 1 on one device."""

    tp_size: int = 1
    pp_size: int = 1
    ep_size: int = 1


@record
class EndpointRequest:
    """Where the server listens; port 0 takes a free one. ``api_key_file`` names a file, never the key."""

    host: str = "127.0.0.1"
    port: int = 0
    api_key_file: str | None = None


@record
class VerifyRequest:
    """How answers are checked.

    Args:
        reference: Path of a reference file, ``embedded:<name>`` for one that ships with freehold, or None.
    """

    reference: str | None = None


@record
class BenchRequest:
    """What is measured.

    Args:
        requests: Counted requests per arm and prompt class (>= 15 for an interval to be shown as a headline).
        warmup: Requests dropped first, per arm.
        output_tokens: Fixed output length per request.
        prompt_classes: Kinds of prompt, kept apart: ``code``, ``prose``.
        concurrency: Streams in flight, one arm each; 1 is the single stream.
    """

    requests: int = 15
    warmup: int = 2
    output_tokens: int = 128
    prompt_classes: tuple[str, ...] = ("code", "prose")
    concurrency: tuple[int, ...] = (1,)


@record
class Recipe:
    """One thing to serve, on one engine, with everything needed to do it again."""

    freehold: Literal[1] = 1
    name: str
    model: str
    tokenizer: str | None = None
    engine: EngineRequest
    layout: LayoutRequest = field(default_factory=LayoutRequest)
    context: int = 4096
    sequences: int = 1
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    speculation: Mapping[str, OptionValue] | None = None
    overlays: tuple[str, ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)
    hardware: str | None = None
    endpoint: EndpointRequest = field(default_factory=EndpointRequest)
    verify: VerifyRequest = field(default_factory=VerifyRequest)
    bench: BenchRequest = field(default_factory=BenchRequest)

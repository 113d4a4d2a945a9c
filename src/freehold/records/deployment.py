"""What is running: launched by us or attached to, with the configuration the engine really took.

Does not do: starting or stopping (``launch/``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from freehold.evidence import Evidence
from freehold.records.base import record

__all__ = ["Deployment", "OwnedProcess"]


@record
class OwnedProcess:
    """A process we started, written down before it runs, so that it can be found and ended safely.

    Args:
        node: Which machine.
        pid: Process id; 0 until it is known.
        started_at: Kernel start time of that pid (seconds since the epoch); a reused pid has another one.
        argv_sha256: Hash of the argument vector.
        argv: The argument vector; never holds a secret.
        env: Environment variables that were set on top of the inherited ones.
        log: Base name of its log in the run folder's ``logs``.
    """

    schema: Literal["freehold.process/1"] = "freehold.process/1"
    node: str
    pid: int
    started_at: float
    argv_sha256: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: str


@record
class Deployment:
    """A server that answers.

    Args:
        origin: ``launched`` by us or ``attached`` to.
        base_url: Address of the OpenAI-compatible API, without a trailing slash, e.g. ``http://127.0.0.1:8080/v1``.
        model: Model name to send in requests.
        engine: Engine that was recognised (``llama.cpp``, ``vllm``, ``openai`` for an unknown one).
        engine_version: As the engine says.
        process: The process, for a launched one.
        ready_s: Launch until the first completed completion.
        requested: What the recipe asked of the engine, by our option names.
        effective: What the engine says it took.
        memory_predicted_bytes: The plan's steady state.
        memory_actual_bytes: Measured after load: resident set of the process.
        notes: Differences and warnings, one sentence each.
        where: Paths of the machine that made it; the only place they are allowed.
    """

    schema: Literal["freehold.deployment/1"] = "freehold.deployment/1"
    made_from: Mapping[str, str]
    origin: Literal["launched", "attached"]
    base_url: str
    model: str
    engine: str
    engine_version: str | None
    process: OwnedProcess | None = None
    ready_s: Evidence
    requested: Mapping[str, str] = field(default_factory=dict)
    effective: Mapping[str, str] = field(default_factory=dict)
    memory_predicted_bytes: Evidence
    memory_actual_bytes: Evidence
    notes: tuple[str, ...] = ()
    where: Mapping[str, str] = field(default_factory=dict)

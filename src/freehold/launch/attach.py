"""Takes a server that somebody else started, and says what is known of it and what is not.

Read :func:`attach`.

Does not do: starting, stopping, or trusting what such a server says beyond writing it down.
"""

from __future__ import annotations

from collections.abc import Mapping

from freehold.client.openai import open_endpoint
from freehold.engines.registry import recognise
from freehold.errors import FreeholdError
from freehold.evidence import Evidence
from freehold.records.deployment import Deployment
from freehold.secret import Secret
from freehold.world import World

__all__ = ["attach"]

_REASON = "the server was not started by freehold"


def attach(
    url: str,
    *,
    world: World,
    api_key: Secret | None = None,
    model: str | None = None,
    made_from: Mapping[str, str] | None = None,
) -> Deployment:
    """Recognise a running server at an address.

    Args:
        url: Its address as a person types it.
        world: For the requests.
        api_key: Key to send.
        model: Model to ask for; None takes the only one it offers.
        made_from: sha256 of the records it stands on, by name.

    Returns:
        A deployment whose plan, process, start and memory are not measured.

    Raises:
        InputError: The address is none, or it is not clear which model is meant.
        PrerequisiteError: Nothing answers, the connection cannot be trusted, or the key is refused.
        EngineError: What answers is no OpenAI-compatible API.
    """
    endpoint = open_endpoint(world, url, api_key, model=model)
    found = recognise(world, endpoint)
    notes: list[str] = []
    try:
        effective = found.dialect.effective(world, endpoint)
    except FreeholdError as error:
        effective = {}
        notes.append(f"the server does not say its configuration: {error.what}")
    return Deployment(
        made_from=dict(made_from or {}),
        origin="attached",
        base_url=endpoint.base_url,
        model=endpoint.model,
        engine=found.dialect.name,
        engine_version=found.version,
        ready_s=Evidence.not_measured(_REASON, "s"),
        effective=effective,
        memory_predicted_bytes=Evidence.not_measured(_REASON, "bytes_memory"),
        memory_actual_bytes=Evidence.not_measured(_REASON, "bytes_memory"),
        notes=tuple(notes),
    )

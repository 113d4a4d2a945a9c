"""Asks a server for its first completion, without holding up whoever watches the server meanwhile.

Readiness is a real completion and never a health route: servers have answered 200 there and died at the first
request. Read :class:`FirstCompletion`.

Does not do: deciding how long to wait (``start.py``).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from freehold.client.api import Completion, Endpoint
from freehold.client.openai import complete
from freehold.errors import EngineError, FreeholdError, PrerequisiteError
from freehold.world import World

__all__ = ["Attempt", "FirstCompletion"]

_PROMPT = "The capital of France is"
_TOKENS = 4
_LOADING_STATUS = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """How one attempt ended.

    Args:
        completion: The answer; None when there was none.
        error: What went wrong; None when nothing did.
        is_early: Whether the server only is not that far: nobody listens yet, or it says that it is loading.
    """

    completion: Completion | None = None
    error: FreeholdError | None = None
    is_early: bool = False


class FirstCompletion:
    """Attempts at a first completion, one at a time, each in a thread of its own.

    Args:
        world: For the request.
        endpoint: Where to ask.
    """

    def __init__(self, world: World, endpoint: Endpoint) -> None:
        self._world = world
        self._endpoint = endpoint
        self._thread: threading.Thread | None = None
        self._result: Attempt | None = None

    @property
    def is_running(self) -> bool:
        """Whether an attempt has been sent and not been collected."""
        return self._thread is not None

    def send(self, timeout_s: float) -> None:
        """Send one attempt."""
        self._result = None
        self._thread = threading.Thread(target=self._run, args=(timeout_s,), daemon=True)
        self._thread.start()

    def collect(self, wait_s: float) -> Attempt | None:
        """How the attempt ended; None while it has not."""
        if self._thread is None:
            return None
        self._thread.join(wait_s)
        if self._thread.is_alive():
            return None
        self._thread = None
        return self._result

    def _run(self, timeout_s: float) -> None:
        payload: dict[str, object] = {"prompt": _PROMPT, "max_tokens": _TOKENS, "temperature": 0}
        try:
            completion = complete(self._world, self._endpoint, "/completions", payload, timeout_s=timeout_s)
        except PrerequisiteError as error:
            is_refused = "refuses the key" in error.what
            self._result = Attempt(error=error, is_early=not is_refused)
            return
        except FreeholdError as error:
            self._result = Attempt(error=error, is_early=error.facts.get("status") == _LOADING_STATUS)
            return
        if not completion.text and not completion.usage.completion_tokens:
            empty = EngineError(
                "the first completion is empty",
                why="the answer has neither text nor a count of tokens",
                fix="look into the engine's log",
            )
            self._result = Attempt(error=empty)
            return
        self._result = Attempt(completion=completion)

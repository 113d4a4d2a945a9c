"""Progress as a stream of events: the library reports, the command line renders.

Does not do: printing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Listener", "Progress", "ignore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One step of one stage.

    Args:
        stage: Stage name, such as ``launch``.
        message: What is happening, lower case.
        done: How much is done, None where it cannot be counted.
        total: How much there is.
        unit: Unit of both: ``bytes``, ``requests``, ``checks`` …
        is_final: Whether the stage is over with this event; the message is then its one-line summary.
        is_failed: For a final event, whether the stage ended badly.
    """

    stage: str
    message: str
    done: float | None = None
    total: float | None = None
    unit: str = ""
    is_final: bool = False
    is_failed: bool = False


Listener = Callable[[Progress], None]


def ignore(event: Progress) -> None:
    """A listener that does nothing."""

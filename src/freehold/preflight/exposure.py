"""Who can reach the server, and does it ask them for a key?

Does not do: firewalls; an address that others can reach counts as reached.
"""

from __future__ import annotations

import ipaddress
import stat
from pathlib import Path

from freehold.preflight.question import Question
from freehold.records.verdict import Outcome, Verdict

__all__ = ["check_exposure", "is_loopback"]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; a name other than ``localhost`` counts as reachable."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_exposure(question: Question) -> Verdict:
    """Refuse an address that others can reach unless a key is asked for; look at who can read that key."""
    endpoint = question.recipe.endpoint
    is_local = is_loopback(endpoint.host)
    reach = "only this machine" if is_local else "other machines"
    if endpoint.api_key_file is None:
        if is_local:
            return Verdict(
                check="exposure",
                outcome=Outcome.PASS,
                observation=f"{endpoint.host}: {reach} can reach it, no key is asked for",
            )
        return Verdict(
            check="exposure",
            outcome=Outcome.FAIL,
            observation=f"{endpoint.host}: {reach} can reach it, and no key is asked for",
            why="whoever reaches the port uses the machine, and reads what others ask",
            remedy="set `endpoint.host: 127.0.0.1`, or name a file with a key as `endpoint.api_key_file`",
        )
    path = Path(endpoint.api_key_file).expanduser()
    try:
        mode = path.stat().st_mode
        with path.open("rb") as source:
            is_empty = not source.read(4096).strip()
    except OSError as error:
        return Verdict(
            check="exposure",
            outcome=Outcome.FAIL,
            observation=f"the key file {endpoint.api_key_file} cannot be read: {error.strerror or error}",
            why="the server would start without the key that the recipe promises, or not at all",
            remedy="write the key into that file, and nothing else",
        )
    if is_empty:
        return Verdict(
            check="exposure",
            outcome=Outcome.FAIL,
            observation=f"the key file {endpoint.api_key_file} is empty",
            why="an empty key may be taken for none",
            remedy="write the key into that file, and nothing else",
        )
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return Verdict(
            check="exposure",
            outcome=Outcome.WARN,
            observation=f"{reach} can reach {endpoint.host}; its key file has mode {stat.S_IMODE(mode):04o}",
            why="other users of this machine can read the key",
            remedy=f"`chmod 600 {endpoint.api_key_file}`",
        )
    return Verdict(
        check="exposure",
        outcome=Outcome.PASS,
        observation=f"{endpoint.host}: {reach} can reach it, a key is asked for",
    )

"""Ends a process with everything it started: asks first, waits, then insists.

Read :func:`end_tree`. Each process is named by pid and start time; both are compared again before every signal, so a
pid that was used again meanwhile is left alone.

Does not do: deciding whether a process is ours (``process.py``).
"""

from __future__ import annotations

import signal
from collections.abc import Collection
from dataclasses import dataclass

from freehold.launch.process import same_start
from freehold.world import ProcessFacts, World

__all__ = ["TreeEnd", "end_tree", "family"]

_POLL_S = 0.05
_CHILD_GRACE_S = 2.0
_KILL_WAIT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEnd:
    """How a process and its children ended.

    Args:
        ended: Pids that ended when asked.
        killed: Pids that had to be killed.
        remaining: Pids that are still there: not permitted, or stuck in the kernel.
    """

    ended: tuple[int, ...] = ()
    killed: tuple[int, ...] = ()
    remaining: tuple[int, ...] = ()


def family(world: World, root: ProcessFacts) -> tuple[ProcessFacts, ...]:
    """A process, its descendants, and whatever else is in the session that it leads; the process itself first.

    A descendant that was left behind by its own parent is still in the session, as long as it did not open another.
    """
    everything = world.processes()
    members = {root.pid: root}
    grew = True
    while grew:
        grew = False
        for facts in everything:
            is_member = facts.parent_pid in members or facts.session_id == root.pid
            if facts.pid not in members and is_member and facts.started_at >= root.started_at - 1:
                members[facts.pid] = facts
                grew = True
    return tuple(members.values())


def end_tree(world: World, root: ProcessFacts | None, children: Collection[ProcessFacts], timeout_s: float) -> TreeEnd:
    """End a process, then what is left of its children.

    Args:
        world: For signals and the clock.
        root: The process; None if it is gone and only children are left.
        children: The rest of its family. The first process gets SIGTERM alone and may end them itself.
        timeout_s: How long it may take before it is killed (seconds).
    """
    ended: list[int] = []
    killed: list[int] = []
    known = {facts.pid: facts for facts in children}
    if root is not None:
        _signal(world, [root], signal.SIGTERM)
        is_gone = _wait(world, [root], timeout_s) == []
        known |= {f.pid: f for f in family(world, root) if f.pid != root.pid}
        if not is_gone:
            _signal(world, [root], signal.SIGKILL)
            _wait(world, [root], _KILL_WAIT_S)
        (ended if is_gone else killed).append(root.pid)
    left = [facts for facts in known.values() if _is_there(world, facts)]
    ended += [pid for pid in known if pid not in {facts.pid for facts in left}]
    if left:
        _signal(world, left, signal.SIGTERM)
        stubborn = _wait(world, left, _CHILD_GRACE_S)
        ended += [facts.pid for facts in left if facts not in stubborn]
        killed += [facts.pid for facts in stubborn]
        _signal(world, stubborn, signal.SIGKILL)
        _wait(world, stubborn, _KILL_WAIT_S)
    everyone = [*known.values(), *([root] if root is not None else [])]
    remaining = {facts.pid for facts in everyone if _is_there(world, facts)}
    return TreeEnd(
        ended=tuple(pid for pid in ended if pid not in remaining),
        killed=tuple(pid for pid in killed if pid not in remaining),
        remaining=tuple(sorted(remaining)),
    )


def _is_there(world: World, facts: ProcessFacts) -> bool:
    now = world.process(facts.pid)
    return now is not None and same_start(now.started_at, facts.started_at)


def _signal(world: World, targets: Collection[ProcessFacts], number: signal.Signals) -> None:
    for facts in targets:
        if _is_there(world, facts):
            try:
                world.signal(facts.pid, number)
            except PermissionError:
                continue


def _wait(world: World, targets: Collection[ProcessFacts], timeout_s: float) -> list[ProcessFacts]:
    """Wait until all are gone; returns those that are not."""
    deadline = world.monotonic() + timeout_s
    while True:
        left = [facts for facts in targets if _is_there(world, facts)]
        if not left or world.monotonic() >= deadline:
            return left
        world.sleep(_POLL_S)

"""Starts a recipe's engine and returns when it has really answered, or says why it did not.

Read :func:`launch`. Whatever happens in between, Ctrl-C included, nothing that was started stays behind.

Does not do: keeping it alive afterwards, or stopping it later (``stop.py``).
"""

from __future__ import annotations

import ipaddress
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from freehold.client.api import Endpoint
from freehold.engines.interface import Engine, LaunchCommand
from freehold.errors import EngineError, FreeholdError, InputError, PrerequisiteError
from freehold.evidence import Evidence
from freehold.launch.interrupts import interrupts_held
from freehold.launch.process import (
    ProcessRecord,
    argv_sha256,
    is_same_command,
    next_record_name,
    with_pid,
    write_record,
)
from freehold.launch.tree import end_tree, family
from freehold.launch.wait import Started, Waiting, wait_until_ready
from freehold.launch.watch import LogFollower
from freehold.progress import Listener, Progress
from freehold.records.deployment import Deployment, OwnedProcess
from freehold.records.folder import RunFolder, read_limited
from freehold.records.plan import Plan
from freehold.records.recipe import Recipe
from freehold.secret import Secret
from freehold.units import format_memory
from freehold.world import World, utc_text

__all__ = ["launch"]

_STOP_TIMEOUT_S = 10.0
_MEMORY_SLACK = 1.1
_MAX_KEY_FILE_BYTES = 2**20
_OWNER_VARIABLE = "FREEHOLD_OWNER_PID"


def launch(
    recipe: Recipe,
    engine: Engine,
    *,
    model_files: Sequence[Path],
    plan: Plan | None,
    folder: RunFolder,
    world: World,
    listener: Listener,
    api_key: Secret | None,
    made_from: Mapping[str, str],
    timeout_s: float,
    keep: bool,
) -> Deployment:
    """Start a recipe's engine and wait until its first completion.

    Args:
        recipe: What to serve, and where.
        engine: The recipe's engine.
        model_files: The checkpoint's files, in order.
        plan: The choice behind it; None leaves its prediction not measured.
        folder: Run folder; process records and logs are written there.
        world: For everything outside.
        listener: Gets what the log says.
        api_key: Key to send; None takes the first of the recipe's ``api_key_file``, if it names one.
        made_from: sha256 of the records it stands on, by name.
        timeout_s: How long it may take until the first completion (seconds).
        keep: Whether the engine may outlive this process.

    Returns:
        The deployment, answering. It is not saved here.

    Raises:
        InputError: The recipe asks for what the engine cannot do, or opens a port to the network without a key.
        PrerequisiteError: The engine is not installed, has another version than the recipe insists on, or the port
            is taken.
        EngineError: It ended, did not answer in time, or answered something that is no completion.
        KeyboardInterrupt: Ctrl-C; everything started has been stopped.
    """
    engine.check_options(recipe)
    _refuse_open_door(recipe)
    if api_key is None and recipe.endpoint.api_key_file is not None:
        api_key = _first_key(Path(recipe.endpoint.api_key_file))
    version = _wanted_version(recipe, engine, world)
    port = _choose_port(world, recipe.endpoint.host, recipe.endpoint.port)
    commands = engine.commands(recipe, model_files=model_files, port=port, alias=recipe.name)
    endpoint = Endpoint(base_url=_base_url(recipe.endpoint.host, port), model=recipe.name, api_key=api_key)
    listener(Progress(stage="launch", message=f"starting {engine.name} {version} on port {port}"))
    began = world.monotonic()
    started: list[Started] = []
    try:
        for command in sorted(commands, key=lambda c: c.order):
            with interrupts_held():
                started.append(_start(command, folder, world, keep=keep))
        answer = wait_until_ready(
            Waiting(
                engine=engine,
                endpoint=endpoint,
                port=port,
                started=tuple(started),
                model_bytes=sum(path.stat().st_size for path in model_files),
                deadline_s=began + timeout_s,
                timeout_s=timeout_s,
            ),
            world,
            listener,
        )
        ready_s = world.monotonic() - began
        started[0] = _record_command(started[0], folder, world)
        _record_children(started, folder, world)
        return _describe(
            recipe,
            engine,
            version,
            endpoint,
            started,
            folder=folder,
            world=world,
            plan=plan,
            made_from=made_from,
            ready_s=ready_s,
            log_facts=answer.facts,
            warnings=answer.warnings,
        )
    except BaseException:
        with interrupts_held():
            for one in reversed(started):
                _end(one, world)
        raise


def _refuse_open_door(recipe: Recipe) -> None:
    """Without a key a server listens on this machine only."""
    host = recipe.endpoint.host
    try:
        is_local = ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        is_local = host == "localhost"
    if not is_local and recipe.endpoint.api_key_file is None:
        raise InputError(
            f"the server would listen on {host} without an API key",
            why="everybody who can reach this machine could use it",
            fix="name a key file as `endpoint.api_key_file`, or listen on 127.0.0.1",
        )


def _first_key(path: Path) -> Secret:
    try:
        lines = [line.strip() for line in read_limited(path, _MAX_KEY_FILE_BYTES).decode().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read the key file {path}",
            why=getattr(error, "strerror", None) or "it is no UTF-8 text",
            fix="name a text file with one key per line as `endpoint.api_key_file`",
        ) from None
    keys = [line for line in lines if line and line[0] not in "#;"]
    if not keys:
        raise InputError(f"the key file {path} holds no key", why="it has no line with text", fix="write a key into it")
    return Secret(keys[0])


def _wanted_version(recipe: Recipe, engine: Engine, world: World) -> str:
    found = engine.installed_version(recipe, world)
    wanted = recipe.engine.version
    if found is None:
        raise PrerequisiteError(
            f"{engine.name} is not installed",
            why=f"its runtime `{recipe.engine.runtime}` was not found",
            fix="install it, or name another `engine.runtime` in the recipe",
        )
    if wanted is not None and found != wanted:
        raise PrerequisiteError(
            f"{engine.name} is version {found}, the recipe insists on {wanted}",
            why="another version may answer differently, so results would not compare",
            fix=f"install {wanted}, or write `engine.version: {found}` into the recipe",
            facts={"found": found, "wanted": wanted},
        )
    return found


def _choose_port(world: World, host: str, port: int) -> int:
    """A port to listen on; a process that has it already is named and left alone."""
    holder = world.listener(port) if port else None
    if holder is not None:
        since = utc_text(datetime.fromtimestamp(holder.started_at, UTC))
        raise PrerequisiteError(
            f"port {port} is taken by process {holder.pid}",
            why=f"it has been running since {since}: `{' '.join(holder.argv)[:200]}`",
            fix=f"stop it with `freehold stop` or `kill {holder.pid}` if it is yours, or use `endpoint.port: 0`",
            facts={"pid": holder.pid, "argv": list(holder.argv), "started_at": holder.started_at, "port": port},
        )
    return world.bindable_port(host, port)


def _base_url(host: str, port: int) -> str:
    """Where a client on this machine reaches a server that listens on a host."""
    reach = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host.strip("[]"), host.strip("[]"))
    return f"http://[{reach}]:{port}/v1" if ":" in reach else f"http://{reach}:{port}/v1"


def _start(command: LaunchCommand, folder: RunFolder, world: World, *, keep: bool) -> Started:
    """Write down what is about to run, start it, and write down what it became."""
    name = next_record_name(folder)
    log = folder.path / "logs" / f"{name.removesuffix('.json').replace('process', 'engine')}.log"
    log.parent.mkdir(exist_ok=True)
    argv, env = command.argv, dict(command.env)
    # The kernel ties a child to the thread that started it, so only the main thread may ask for that.
    if not keep and threading.current_thread() is threading.main_thread():
        owner = str(os.getpid())
        env[_OWNER_VARIABLE] = owner
        argv = (sys.executable, "-P", "-m", "freehold.launch.owned", "--owner-pid", owner, "--", *argv)
    process = OwnedProcess(
        node=command.node,
        pid=0,
        started_at=world.now().timestamp(),
        argv_sha256=argv_sha256(command.argv),
        argv=command.argv,
        env=env,
        log=log.name,
    )
    write_record(folder, ProcessRecord(name=name, process=process))
    offset = log.stat().st_size if log.exists() else 0
    pid = world.spawn(argv, env=env, log=log)
    facts = world.process(pid)
    one = Started(record=ProcessRecord(name=name, process=process), pid=pid, facts=facts, log=LogFollower(log, offset))
    if facts is None:
        return one
    record = ProcessRecord(name=name, process=with_pid(process, facts))
    try:
        write_record(folder, record)
    except BaseException:
        _end(one, world)
        raise
    return Started(record=record, pid=pid, facts=facts, log=one.log)


def _record_command(one: Started, folder: RunFolder, world: World) -> Started:
    """Write down the command line that a process shows now, if it has become something else since its start."""
    now = world.process(one.pid)
    process = one.record.process
    if now is None or is_same_command(process.argv, now.argv):
        return one
    changed = OwnedProcess(
        node=process.node,
        pid=process.pid,
        started_at=process.started_at,
        argv_sha256=argv_sha256(now.argv),
        argv=now.argv,
        env=process.env,
        log=process.log,
    )
    record = ProcessRecord(name=one.record.name, process=changed)
    write_record(folder, record)
    return Started(record=record, pid=one.pid, facts=now, log=one.log)


def _record_children(started: Sequence[Started], folder: RunFolder, world: World) -> None:
    """Write down what the engine has started itself, so that it can be found even if the engine dies without it."""
    ours = {one.pid for one in started}
    for one in started:
        for child in family(world, one.facts)[1:] if one.facts else ():
            if child.pid in ours:
                continue
            process = OwnedProcess(
                node=one.record.process.node,
                pid=child.pid,
                started_at=child.started_at,
                argv_sha256=argv_sha256(child.argv),
                argv=child.argv,
                env={},
                log=one.record.process.log,
            )
            write_record(folder, ProcessRecord(name=next_record_name(folder), process=process))


def _end(one: Started, world: World) -> None:
    if one.facts is not None:
        members = family(world, one.facts)
        end_tree(world, world.process(one.pid) and one.facts, members[1:], _STOP_TIMEOUT_S)


def _describe(
    recipe: Recipe,
    engine: Engine,
    version: str,
    endpoint: Endpoint,
    started: Sequence[Started],
    *,
    folder: RunFolder,
    world: World,
    plan: Plan | None,
    made_from: Mapping[str, str],
    ready_s: float,
    log_facts: Mapping[str, str],
    warnings: Sequence[str],
) -> Deployment:
    moment = utc_text(world.now())
    notes = list(dict.fromkeys(warnings))
    effective = dict(log_facts)
    try:
        effective |= engine.dialect.effective(world, endpoint)
    except FreeholdError as error:
        notes.append(f"the server does not say its configuration: {error.what}")
    requested = {"context_tokens": str(recipe.context), "sequences": str(recipe.sequences)}
    requested |= {name: str(value) for name, value in recipe.options.items()}
    for name, wanted in requested.items():
        if name in effective and effective[name] != wanted:
            notes.append(f"{name}: asked for {wanted}, the engine took {effective[name]}")
    predicted = (
        Evidence.not_measured("there was no plan", "bytes_memory") if plan is None else plan.contract.steady_bytes
    )
    actual = _resident(world, started, moment)
    if predicted.number and actual.number and actual.number > predicted.number * _MEMORY_SLACK:
        over = format_memory(round(actual.number - predicted.number))
        notes.append(f"it takes {over} more memory than planned: {actual.text} instead of {predicted.text}")
    return Deployment(
        made_from=made_from,
        origin="launched",
        base_url=endpoint.base_url,
        model=endpoint.model,
        engine=engine.dialect.name,
        engine_version=version,
        process=started[0].record.process,
        ready_s=Evidence.measured(
            round(ready_s, 3),
            "s",
            source="monotonic clock, from the start to the end of the first completion",
            date=moment,
        ),
        requested=requested,
        effective=effective,
        memory_predicted_bytes=predicted,
        memory_actual_bytes=actual,
        notes=tuple(notes),
        where={"run": str(folder.path), "log": str(started[0].log.path)},
    )


def _resident(world: World, started: Sequence[Started], moment: str) -> Evidence:
    """Resident memory of everything that was started, after the first completion."""
    members = [facts for one in started if (now := world.process(one.pid)) for facts in family(world, now)]
    if not members:
        raise EngineError(
            "the engine ended right after its first completion",
            why=f"its last line: {started[0].log.last_line!r} (full log: {started[0].log.path})",
            fix="read the log and start it again",
        )
    total = sum(facts.resident_bytes for facts in members)
    detail = "" if len(members) == 1 else f" of {len(members)} processes, shared pages counted in each"
    return Evidence.measured(
        total, "bytes_memory", source=f"resident set{detail} after the first completion", date=moment
    )

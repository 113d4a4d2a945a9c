"""The process of the embedded runtime: runs the package's own HTTP server until it is told to end.

    python -m freehold.engines.llama_cpp.serve --model FILE --host 127.0.0.1 --port 8080 --alias NAME \
        --context-tokens 4096 --sequences 1 [--api-key-file FILE] [--set NAME=VALUE …]

Everything is an argument, so the recorded argument vector repeats it; a key is only named by its file. The engine
divides its context over its slots, so it gets tokens x sequences. ``GOMP_SPINCOUNT=0`` is set before the package is
imported: without it idle threads spin, and decode on 2 busy cores was seen to fall from 68 to 4 tok/s between two
requests of one server (2026-11-30, SmolLM2-135M Q4_1).
SIGTERM and SIGINT end it at once, a request in flight included: the package's own end waits for such a request, which
was seen to take 15 s. With ``FREEHOLD_OWNER_PID`` in the environment it also ends when it no longer has that parent.

Does not do: choosing any of that (``engine.py``), restarting, or more than one model.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

from freehold.errors import FreeholdError, InputError, PrerequisiteError
from freehold.records.recipe import OptionValue

__all__ = ["OWNER_VARIABLE", "ServeConfig", "build_parameters", "main", "parse_arguments", "read_keys"]

OWNER_VARIABLE = "FREEHOLD_OWNER_PID"
_END_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_OWNER_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """What to serve and how; ``options`` are checked options of ``options.py``."""

    model: str
    alias: str
    host: str
    port: int
    context_tokens: int
    sequences: int
    api_key_file: str | None = None
    options: tuple[tuple[str, OptionValue], ...] = ()


def parse_arguments(argv: Sequence[str]) -> ServeConfig:
    """Read the process's arguments.

    Raises:
        InputError: An option that the embedded runtime does not have, or a value it does not take.
    """
    from freehold.engines.llama_cpp.options import parse_option

    parser = argparse.ArgumentParser(prog="freehold-llama-cpp-serve", allow_abbrev=False)
    parser.add_argument("--model", required=True, metavar="FILE", help="GGUF file, the first shard of a split one")
    parser.add_argument("--alias", required=True, help="model name of the API")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--context-tokens", type=int, required=True, help="tokens per sequence")
    parser.add_argument("--sequences", type=int, default=1, help="sequences served at once")
    parser.add_argument("--api-key-file", metavar="FILE", help="file with one key per line")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="option of the engine")
    given = parser.parse_args(argv)
    if given.context_tokens < 1 or given.sequences < 1:
        raise InputError(
            f"{given.context_tokens} tokens for {given.sequences} sequences",
            why="both have to be at least 1",
            fix="give both as positive whole numbers",
        )
    return ServeConfig(
        model=given.model,
        alias=given.alias,
        host=given.host,
        port=given.port,
        context_tokens=given.context_tokens,
        sequences=given.sequences,
        api_key_file=given.api_key_file,
        options=tuple(parse_option(text) for text in given.set),
    )


def read_keys(path: str) -> list[str]:
    """Keys of a file, one per line, as the binary reads them: blank lines and those with ``#`` or ``;`` first are not.

    Raises:
        InputError: The file cannot be read, or holds no key.
    """
    try:
        with open(path, encoding="utf-8") as source:
            lines = [line.strip() for line in source]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read the key file {path}",
            why=getattr(error, "strerror", None) or "it is no UTF-8 text",
            fix="name a text file with one key per line",
        ) from None
    keys = [line for line in lines if line and line[0] not in "#;"]
    if not keys:
        raise InputError(f"the key file {path} holds no key", why="it has no line with text", fix="write a key into it")
    return keys


def build_parameters(config: ServeConfig, package: ModuleType) -> Any:
    """The package's parameters for a configuration.

    Raises:
        InputError: An option cannot be set, or the key file cannot be read.
    """
    from freehold.engines.llama_cpp.options import apply_option

    parameters = package.CommonParams()
    parameters.model.path = config.model
    parameters.model_alias = {config.alias}
    parameters.hostnames = [config.host]
    parameters.port = config.port
    parameters.n_ctx = config.context_tokens * config.sequences
    parameters.n_parallel = config.sequences
    parameters.endpoint_metrics = True
    parameters.endpoint_slots = True
    parameters.endpoint_props = False
    parameters.ui = False
    parameters.offline = True
    if config.api_key_file is not None:
        parameters.api_keys = read_keys(config.api_key_file)
    for name, value in config.options:
        apply_option(parameters, package, name, value)
    return parameters


def _say(text: str) -> None:
    """One line of our own in the log, with the time."""
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    sys.stderr.write(f"{moment}Z freehold: {text}\n")
    sys.stderr.flush()


def _import_package() -> ModuleType:
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    try:
        import xllamacpp
    except ImportError as error:
        raise PrerequisiteError(
            "the embedded llama.cpp cannot be imported",
            why=str(error),
            fix="install the package `xllamacpp`, or name a llama-server binary as `engine.runtime`",
        ) from None
    package: ModuleType = xllamacpp
    return package


def _watch_owner(owner_pid: int, ended: threading.Event) -> None:
    """End when the process that started this one is gone."""
    while not ended.wait(_OWNER_POLL_S):
        if os.getppid() != owner_pid:
            _say(f"the process that started this one ({owner_pid}) is gone")
            ended.set()


def _start(config: ServeConfig, ended: threading.Event) -> Any:
    """Start the server; returns the package's object, which lives as long as the server does."""
    package = _import_package()
    parameters = build_parameters(config, package)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    owner = os.environ.get(OWNER_VARIABLE, "")
    if owner.isdecimal():
        threading.Thread(target=_watch_owner, args=(int(owner), ended), daemon=True).start()
    try:
        server = package.Server(parameters)
    except (RuntimeError, MemoryError) as error:
        raise PrerequisiteError(
            "the engine did not start", why=str(error) or "out of memory", fix="its own lines above say more"
        ) from None
    for number in _END_SIGNALS:
        signal.signal(number, lambda *_: ended.set())
    return server


def main() -> int:
    """Run the process until it is told to end; returns an exit status only if it did not start."""
    ended = threading.Event()
    try:
        config = parse_arguments(sys.argv[1:])
        server = _start(config, ended)
    except FreeholdError as error:
        _say(f"error: {error.what}: {error.why} (fix: {error.fix})")
        return error.exit_code
    _say(f"serving {config.alias} at {server.listening_address}")
    ended.wait()
    _say("ended")
    # Not a return: the package's destructor would wait for requests in flight.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())

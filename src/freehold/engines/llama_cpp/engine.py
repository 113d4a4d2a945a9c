"""Makes llama.cpp an engine: which version would start, with which arguments, and what it needs of memory.

Two runtimes: ``embedded`` is the Python package (``serve.py``), anything else names a ``llama-server`` binary. The
options and their values are the same for both. Read :meth:`LlamaCppEngine.commands`.

Measured 2026-11-30 on 2 cores that others used too, SmolLM2-135M Q4_1, 64 tokens, arms alternated (ABBA, n = 16):
start to first completion 0.88 s embedded and 0.50 s for a b10605 binary (medians of 4); decode 57.7 and 54.9 tok/s
(22.7 to 61.0), so the runtimes do not differ. With ``threads: 1`` decode was 75 tok/s, with 3 on 2 cores 52 (n = 4
each): a model this small gains nothing from a second thread on a busy machine, which has to wait for it.

Does not do: starting anything (``launch/``), or talking to a server (``dialect.py``).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from freehold.engines.interface import Dialect, LaunchCommand, LogEvent
from freehold.engines.llama_cpp import signals
from freehold.engines.llama_cpp.options import check_options, facts, memory_facts, to_flags, to_text
from freehold.errors import EngineError, InputError, PrerequisiteError
from freehold.records.recipe import OptionValue, Recipe
from freehold.world import World

__all__ = ["EMBEDDED", "PACKAGE", "LlamaCppEngine"]

EMBEDDED = "embedded"
PACKAGE = "xllamacpp"
_VERSION_TIMEOUT_S = 30.0
_THREAD_ENVIRONMENT = {"GOMP_SPINCOUNT": "0"}
_VERSIONS = (
    re.compile(r"version: .*\(build (?P<build>\d+), commit (?P<commit>\w+)\)"),
    re.compile(r"version: (?P<build>\d+) \((?P<commit>\w+)\)"),
)


class LlamaCppEngine:
    """llama.cpp, as the Python package or as a binary."""

    @property
    def name(self) -> str:
        """Name in a recipe."""
        return "llama.cpp"

    @cached_property
    def dialect(self) -> Dialect:
        """How to talk to it."""
        from freehold.engines.llama_cpp.dialect import LlamaCppDialect

        return LlamaCppDialect()

    def installed_version(self, recipe: Recipe, world: World) -> str | None:
        """Version that the recipe's runtime would start; None when it is not installed.

        A package has its own version; a binary is named as the engine does it itself, ``b10605-unknown``: build and
        commit.

        Raises:
            EngineError: The binary runs, but its ``--version`` says no version.
        """
        if recipe.engine.runtime == EMBEDDED:
            from importlib.metadata import PackageNotFoundError, version

            try:
                return version(PACKAGE)
            except PackageNotFoundError:
                return None
        try:
            done = world.run(
                [recipe.engine.runtime, "--version"],
                timeout_s=_VERSION_TIMEOUT_S,
                env=_library_environment(recipe.engine.runtime),
            )
        except PrerequisiteError:
            return None
        printed = done.stdout + done.stderr
        for expression in _VERSIONS:
            found = expression.search(printed)
            if found:
                return f"b{found['build']}-{found['commit']}"
        lines = [line for line in printed.splitlines() if line.strip()]
        raise EngineError(
            f"{recipe.engine.runtime} does not say its version",
            why=f"`--version` ended with {done.returncode}: {lines[-1] if lines else 'no output'}",
            fix="name a llama-server binary that runs on this machine as `engine.runtime`, or use `embedded`",
        )

    def check_options(self, recipe: Recipe) -> None:
        """Refuse what this engine cannot do for a recipe: unknown options, wrong values, a layout it has no name for.

        Raises:
            InputError: One of these.
        """
        self._options(recipe)

    def memory_terms(self) -> Mapping[str, object]:
        """Constants for the planner, in plain values: the sections of ``plan/constants.py``.

        Source:
            ``data/engines/llama_cpp_memory.toml``, with the measurements they are fitted to.
        """
        return memory_facts()

    def commands(
        self, recipe: Recipe, *, model_files: Sequence[Path], port: int, alias: str
    ) -> tuple[LaunchCommand, ...]:
        """The one process to start.

        Args:
            recipe: What to serve.
            model_files: The checkpoint's files in order; the engine finds the other shards beside the first.
            port: Where to listen.
            alias: Model name of the API.

        Raises:
            InputError: The recipe asks for what the engine cannot do, or the checkpoint is no GGUF file.
        """
        options = self._options(recipe)
        if not model_files or model_files[0].suffix.lower() != ".gguf":
            found = model_files[0].name if model_files else "no file"
            raise InputError(
                f"llama.cpp cannot serve {found}",
                why="it reads GGUF files",
                fix="name a GGUF checkpoint as `model`, or choose another engine",
            )
        model = str(model_files[0])
        endpoint = recipe.endpoint
        keys = () if endpoint.api_key_file is None else ("--api-key-file", endpoint.api_key_file)
        if recipe.engine.runtime == EMBEDDED:
            settings = [part for text in to_text(options) for part in ("--set", text)]
            argv = (
                *(sys.executable, "-P", "-m", "freehold.engines.llama_cpp.serve"),
                *("--model", model, "--alias", alias, "--host", endpoint.host, "--port", str(port)),
                *("--context-tokens", str(recipe.context), "--sequences", str(recipe.sequences)),
                *keys,
                *settings,
            )
            return (LaunchCommand(argv=argv, env=_THREAD_ENVIRONMENT),)
        argv = (
            *(recipe.engine.runtime, "--model", model, "--alias", alias),
            *("--host", endpoint.host, "--port", str(port)),
            *("--ctx-size", str(recipe.context * recipe.sequences), "--parallel", str(recipe.sequences)),
            *("--metrics", "--slots", "--no-webui"),
            *keys,
            *to_flags(options),
        )
        return (LaunchCommand(argv=argv, env=_THREAD_ENVIRONMENT | _library_environment(recipe.engine.runtime)),)

    def read_line(self, line: str) -> LogEvent | None:
        """What a log line says, None when nothing of interest."""
        return signals.read_line(line)

    def last_words(self, log: str) -> tuple[str, ...]:
        """The decisive lines of a log of an engine that died, at most five."""
        return signals.last_words(log)

    def _options(self, recipe: Recipe) -> dict[str, OptionValue]:
        layout = recipe.layout
        if (layout.tp_size, layout.pp_size, layout.ep_size) != (1, 1, 1):
            raise InputError(
                "llama.cpp takes no `layout`",
                why="it splits a model by its own options, not by ranks",
                fix="remove `layout`; on several accelerators use the options `split-mode` and `tensor-split`",
            )
        if recipe.speculation:
            raise InputError(
                "llama.cpp takes no `speculation` section",
                why="its speculation has the engine's own option names",
                fix="remove `speculation` and use the options `spec-type`, `spec-draft-model` …",
            )
        is_embedded = recipe.engine.runtime == EMBEDDED
        defaults = dict(facts()["defaults"]) | (facts()["defaults_embedded"] if is_embedded else {})
        return check_options(defaults | dict(recipe.options), is_embedded=is_embedded)


def _library_environment(runtime: str) -> dict[str, str]:
    """Where a binary finds the shared libraries beside it, if it does not say so itself.

    Builds are often shipped as a folder of a small binary and its libraries. Most name ``$ORIGIN`` (on macOS
    ``@loader_path``) in their header and need nothing. For the others the search path is that folder, in place of an
    inherited one.
    """
    path = Path(runtime)
    if len(path.parts) < 2 or not path.is_file():
        return {}
    folder = path.resolve().parent
    is_mac = sys.platform == "darwin"
    if not any(folder.glob("*.dylib" if is_mac else "lib*.so*")):
        return {}
    header = path.read_bytes()
    if b"$ORIGIN" in header or b"@loader_path" in header or b"@executable_path" in header:
        return {}
    return {"DYLD_LIBRARY_PATH" if is_mac else "LD_LIBRARY_PATH": str(folder)}

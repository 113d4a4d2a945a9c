"""The ``freehold`` command: finds the sub-command, runs it, and turns whatever goes wrong into text and an exit code.

Commands are loaded only when they are called: :data:`COMMANDS` holds the one-line help of each, so that
``freehold --help`` imports no stage and none of the heavy libraries. Read :func:`main`.

Exit codes: 0 done · 1 the answer is no · 2 misuse · 3 something on the machine is missing · 70 a bug in freehold ·
130 interrupted · 141 whoever read the output stopped reading.

Does not do: the work of any command; each has a module of its own beside this one.
"""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from freehold import __version__
from freehold.errors import FreeholdError, InputError, Interrupted, PrerequisiteError

__all__ = ["BROKEN_PIPE_EXIT", "COMMANDS", "BugError", "build_group", "load_command", "main"]

COMMANDS = {
    "up": "Plan, check, launch, verify, measure and report, in one go.",
    "inspect": "Show what a checkpoint is made of, from its headers alone.",
    "plan": "Show whether a recipe fits this machine and how fast it can be at most.",
    "preflight": "Check this machine against a run's plan again; nothing is started.",
    "launch": "Start the engine of a run again and wait until it really answers.",
    "status": "Show which servers freehold started and whether they still answer.",
    "logs": "Show what the engine of a run wrote.",
    "stop": "End the servers that a run started, and nothing else.",
    "verify": "Check again whether a run's server answers as its checkpoint should.",
    "bench": "Measure again how fast a run's verified server is, as its client sees it.",
    "report": "Render the page and the summary of a run again from its records.",
    "catalog": "Show the hardware and the models that can be planned without having them.",
}
"""Name and one-line help, in the order of the journey; a test compares each with the command's own docstring."""

BROKEN_PIPE_EXIT = 128 + 13
_REFUSALS = frozenset(
    {
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO),
        *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EMFILE, errno.ENFILE),
        errno.ENOMEM,
    }
)
_COMPLETION_VARIABLE = "_FREEHOLD_COMPLETE"
_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class BugError(FreeholdError):
    """Something went wrong that freehold did not foresee."""

    exit_code = 70


def _present() -> list[str]:
    folder = Path(__file__).parent
    return [name for name in COMMANDS if (folder / f"{name}.py").is_file()]


def load_command(name: str) -> Any:
    """Import a command's module and turn its function of the same name into a typer command."""
    function = getattr(importlib.import_module(f"freehold.cli.{name}"), name)
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(name, context_settings=_HELP)(function)
    return typer.main.get_command(app)


class _LazyGroup(TyperGroup):
    """Lists commands from the table and imports one only when it is called."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for name in _present():
            self.commands[name] = TyperCommand(name=name, short_help=COMMANDS[name], rich_markup_mode=None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name and command else command, rest


def _show_version(is_asked: bool) -> None:
    if is_asked:
        sys.stdout.write(f"freehold {__version__}\n")
        raise typer.Exit


def _globals(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; may stand anywhere on the line.")
    ] = False,
) -> None:
    """Run frontier-scale open models on machines you own, and prove what you got.

    Start with `freehold up`: it runs the whole journey on this machine with a small embedded model. Results go to
    stdout, everything else to stderr; most commands take --json.
    """


def build_group() -> Any:
    """The command group as typer sees it; no sub-command is imported."""
    app = typer.Typer(
        name="freehold",
        cls=_LazyGroup,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=_HELP,
    )
    app.callback()(_globals)
    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None, *, run: Callable[[list[str]], int] | None = None) -> int:
    """Run one command line; the only place where an exception becomes text and an exit code.

    Args:
        arguments: Words after the program's name; those of this process by default.
        run: What to do with them, and what may raise; the commands of this package by default.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    flags = words[: words.index("--")] if "--" in words else words
    is_debug, as_json = "--debug" in flags, "--json" in flags
    if is_debug:
        words = [w for i, w in enumerate(words) if w != "--debug" or i >= len(flags)]
    _fill_closed_streams()
    _treat_ends_as_ctrl_c()
    try:
        status = (run or _run)(words or ["--help"])
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _give_up_output()
        return BROKEN_PIPE_EXIT
    except KeyboardInterrupt as error:
        cause: BaseException = error
        problem: FreeholdError = Interrupted()
    except FreeholdError as error:
        cause = problem = error
    except Exception as error:  # noqa: BLE001 - the last resort: a bug becomes a sentence, and its traceback with --debug
        cause, problem = error, _as_usage_error(error) or _as_refusal(error) or _as_bug(error)
    if is_debug:
        import traceback

        traceback.print_exception(cause)
    from freehold.cli.render import write_error

    # Where even the error cannot be written, the exit code still tells.
    with suppress(OSError):
        write_error(problem, as_json=as_json)
    return problem.exit_code


def _fill_closed_streams() -> None:
    """Give a closed stdin, stdout or stderr the null device, or the next file that is opened would take its place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - open for as long as we run


def _give_up_output() -> None:
    """Let what is still buffered for stdout go nowhere, or the interpreter complains again while it shuts down."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _treat_ends_as_ctrl_c() -> None:
    """Let SIGTERM and a lost terminal end the work as Ctrl-C does: servers stopped, measurements kept."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        # A handler that is not the default was put there on purpose, by nohup for example.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def _run(words: list[str]) -> int:
    group = build_group()
    if _COMPLETION_VARIABLE in os.environ:
        group.main(words, prog_name="freehold", complete_var=_COMPLETION_VARIABLE)
    try:
        with group.make_context("freehold", words) as context:
            result = group.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        raise Interrupted from None
    return result if isinstance(result, int) else 0


def _as_usage_error(error: Exception) -> InputError | None:
    """The parser's complaint in our three parts; None for any other exception.

    The parser's own exception types differ between typer releases, so they are told by what they can do.
    """
    context = getattr(error, "ctx", None)
    if not hasattr(error, "format_message"):
        return None
    command = context.command_path if context is not None else "freehold"
    message = str(error.format_message()).strip().rstrip(".")
    reasons = {
        "NoSuchOption": f"`{command}` has no such option, and an unknown one is never ignored",
        "MissingParameter": f"`{command}` cannot do without it",
        "BadParameter": "the value does not have the form that is expected there",
    }
    return InputError(
        message[:1].lower() + message[1:],
        why=reasons.get(type(error).__name__, f"`{command}` does not take these arguments"),
        fix=f"`{command} --help` lists what it takes",
    )


def _as_refusal(error: Exception) -> PrerequisiteError | None:
    """What the system refused where no stage foresaw it, such as a full disk; None for any other exception."""
    if isinstance(error, MemoryError):
        return PrerequisiteError("out of memory", why="the system gave no more", fix="free some memory, then try again")
    if not isinstance(error, OSError) or error.errno not in _REFUSALS:
        return None
    name = "" if error.filename is None else os.fsdecode(error.filename) if not isinstance(error.filename, int) else ""
    if not name:
        _give_up_output()
    return PrerequisiteError(
        f"cannot use {name[:200]}{'…' if len(name) > 200 else ''}" if name else "cannot write the output",
        why=error.strerror or type(error).__name__,
        fix="check the path, its permissions and the disk's free space; `--debug` shows where it happened",
    )


def _as_bug(error: Exception) -> BugError:
    place = "an unknown place"
    trace = error.__traceback__
    while trace is not None:
        place = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return BugError(
        f"internal error: {type(error).__name__}: {error}",
        why=f"a bug in freehold {__version__}, at {place}; nothing you did should end like this",
        fix="run it again with `--debug` and report what it shows, together with the command",
    )

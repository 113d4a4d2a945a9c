"""Starts an engine so that it cannot outlive the process that asked for it.

    python -m freehold.launch.owned --owner-pid PID -- PROGRAM [ARGUMENT …]

On Linux the kernel is asked to send SIGTERM when the parent dies, then this process becomes the engine: same pid, no
process in between. Elsewhere it only becomes the engine. With ``--keep`` a launch does without it.

Does not do: children of the engine; the engine ends them itself on SIGTERM.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


def main(argv: Sequence[str]) -> int:
    """Become the engine; returns an exit status only if that failed."""
    if len(argv) < 4 or argv[0] != "--owner-pid" or argv[2] != "--" or not argv[1].isdecimal():
        sys.stderr.write("freehold: error: usage: python -m freehold.launch.owned --owner-pid PID -- PROGRAM …\n")
        return 2
    owner, command = int(argv[1]), list(argv[3:])
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != owner:
            return 1
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"freehold: error: cannot start `{command[0]}`: {error.strerror}\n")
    return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Which errors does this package raise?

Read first: ``KernelError``.
Does not do: render errors for a terminal; the three parts are plain fields.
"""

from __future__ import annotations

__all__ = ["CompileError", "DeviceError", "InputError", "KernelError"]


class KernelError(Exception):
    """Base of every error here: what happened, why, and what to do about it."""

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        self.what, self.why, self.fix = what, why, fix
        super().__init__(
            "\n".join(p for p in (what, f"  why: {why}" if why else "", f"  try: {fix}" if fix else "") if p)
        )


class InputError(KernelError):
    """A tensor or number handed in cannot be used as it is."""


class CompileError(KernelError):
    """NVRTC is missing or refused the source."""


class DeviceError(KernelError):
    """The GPU or its driver refused an operation."""

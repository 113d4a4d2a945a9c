"""A checkpoint on a hub, read by HTTP ranges through huggingface_hub; only the bytes that are asked for travel.

:class:`HubStore` lists a repository at one commit and opens its files as :class:`RangeSource`, which the readers use
like local files. A server that ignores ranges, answers with a web page, refuses or is not there is an error that says
so, before it can send a whole file.

Does not do: downloading checkpoints (``fetch.py``), or keeping a token.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from freehold.errors import CheckpointError, FreeholdError, InputError, PrerequisiteError
from freehold.models.bytesource import shown
from freehold.secret import Secret

__all__ = ["FolderView", "HubStore", "RangeSource", "hub_errors"]

_TIMEOUT_S = 30.0
_ATTEMPTS = 3
_FIRST_WAIT_S = 0.4
_RETRIED = frozenset({408, 429, 500, 502, 503, 504})
_CONTENT_RANGE = re.compile(r"bytes ([0-9]+)-([0-9]+)/([0-9]+|\*)\Z")

Token = Secret | Literal[False] | None


class HubStore:
    """A repository at one commit.

    Made by :meth:`connect`.
    """

    max_parallel = 8

    def __init__(
        self, repo: str, commit: str, size_by_name: Mapping[str, int], *, endpoint: str | None, token: Token
    ) -> None:
        self.repo = repo
        self.commit = commit
        self.size_by_name = size_by_name
        self.endpoint = endpoint
        self.token = token
        self.place = f"hf:{repo}@{commit[:12]}"
        self.bytes_received = 0
        self._lock = threading.Lock()

    @classmethod
    def connect(cls, repo: str, revision: str | None, *, endpoint: str | None, token: Token) -> HubStore:
        """List a repository.

        Args:
            repo: ``owner/name``.
            revision: Branch, tag or commit; None for the default branch.
            endpoint: Address of the hub, None for the one huggingface_hub is configured for.
            token: Access token, None for the one huggingface_hub knows, False for none.

        Raises:
            InputError: There is no such repository or revision.
            PrerequisiteError: The hub does not answer, refuses, or answers with something that is no listing.
        """
        from huggingface_hub import HfApi, constants

        # Otherwise the first request also asks the default hub, not the one that is meant, which programs it knows.
        constants.HF_HUB_DISABLE_TELEMETRY = True
        with hub_errors(repo, revision):
            info = HfApi(endpoint=endpoint, token=_plain(token)).model_info(
                repo, revision=revision, files_metadata=True, timeout=_TIMEOUT_S
            )
        sizes = {entry.rfilename: entry.size for entry in info.siblings or ()}
        if info.sha is None or any(type(size) is not int or size < 0 for size in sizes.values()):
            raise PrerequisiteError(
                f"the hub's listing of {shown(repo)} is incomplete",
                why="it names no commit, or files without their size",
                fix="check the address of the hub",
            )
        return cls(repo, info.sha, {k: v for k, v in sizes.items() if v is not None}, endpoint=endpoint, token=token)

    def narrow(self, file: str | None) -> tuple[FolderView, str | None]:
        """The folder that a request is about, and the file in it if one was named.

        Args:
            file: A file or folder of the repository; None for its top.

        Raises:
            InputError: There is nothing of that name, or all checkpoints lie in folders and none was named.
        """
        if file is not None:
            file = file.strip("/")
            if file in self.size_by_name:
                folder, _, name = file.rpartition("/")
                return FolderView(self, f"{folder}/" if folder else ""), name
            if any(name.startswith(f"{file}/") for name in self.size_by_name):
                return FolderView(self, f"{file}/"), None
            raise InputError(
                f"{shown(self.place)} has no {shown(file)}",
                why="found " + (", ".join(map(shown, sorted(self.size_by_name)[:6])) or "no files") + " …",
                fix=f"name a file or folder of it: `hf:{self.repo}:NAME`",
            )
        view = FolderView(self, "")
        folders = sorted({n.partition("/")[0] for n in self.size_by_name if "/" in n and _is_weights(n)})
        if folders and not any(map(_is_weights, view.size_by_name)):
            raise InputError(
                f"{shown(self.place)} holds its checkpoints in folders",
                why="found " + ", ".join(map(shown, folders[:8])) + (" …" if len(folders) > 8 else ""),
                fix=f"name the one that is meant, such as `hf:{self.repo}:{folders[0]}`",
                facts={"folders": folders},
            )
        return view, None

    def open(self, name: str) -> RangeSource:
        """One of its files."""
        return RangeSource(self, name)

    def count(self, received: int) -> None:
        """Add to the bytes of file content that came over the wire."""
        with self._lock:
            self.bytes_received += received

    def close(self) -> None:
        """Nothing is held open; connections belong to huggingface_hub."""


class FolderView:
    """One folder of a repository.

    Args:
        hub: The repository.
        prefix: The folder with its final slash, empty for the top.
    """

    def __init__(self, hub: HubStore, prefix: str) -> None:
        self._hub = hub
        self.prefix = prefix
        self.place = f"{hub.place}:{prefix.rstrip('/')}" if prefix else hub.place
        self.max_parallel = hub.max_parallel
        self.size_by_name: Mapping[str, int] = {
            name[len(prefix) :]: size
            for name, size in hub.size_by_name.items()
            if name.startswith(prefix) and "/" not in name[len(prefix) :]
        }

    def open(self, name: str) -> RangeSource:
        """One of its files."""
        return self._hub.open(self.prefix + name)


class RangeSource:
    """One file of a repository, read by ranges.

    Args:
        hub: The repository.
        file: The file's name in it.
    """

    # Large enough for most headers in one round trip, small beside any checkpoint.
    chunk_bytes = 128 * 1024

    def __init__(self, hub: HubStore, file: str) -> None:
        from huggingface_hub import hf_hub_url

        self._hub = hub
        self.name = f"{hub.place}:{file}"
        self.size_bytes = hub.size_by_name[file]
        self._url = hf_hub_url(hub.repo, file, revision=hub.commit, endpoint=hub.endpoint)

    def read(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``."""
        if length == 0:
            return b""
        wait_s = _FIRST_WAIT_S
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._request(offset, length)
            except _Busy as busy:
                if attempt == _ATTEMPTS:
                    raise busy.error from None
                time.sleep(wait_s)
                wait_s *= 2
        raise AssertionError("the loop returns or raises")

    def _request(self, offset: int, length: int) -> bytes:
        from huggingface_hub import get_session
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined] # documented, not exported

        headers = build_hf_headers(token=_plain(self._hub.token))
        headers |= {"Range": f"bytes={offset}-{offset + length - 1}", "Accept-Encoding": "identity"}
        data = bytearray()
        with (
            hub_errors(self._hub.repo, None, is_retried=True),
            get_session().stream("GET", self._url, headers=headers, timeout=_TIMEOUT_S) as reply,
        ):
            self._check(reply.status_code, reply.headers, offset, length)
            for piece in reply.iter_bytes():
                data += piece
                if len(data) > length:
                    break
        self._hub.count(len(data))
        if len(data) != length:
            raise CheckpointError(
                f"the hub sent another length than it was asked for: found {len(data):,} bytes, expected {length:,}",
                why=f"range {offset:,} to {offset + length - 1:,} of {shown(self.name)}",
                fix="try again; if it stays, something between here and the hub changes the answers",
            )
        return bytes(data)

    def _check(self, status: int, headers: Mapping[str, str], offset: int, length: int) -> None:
        """Refuse an answer that is not the range, before any of it is read."""
        kind = headers.get("content-type", "")
        is_page = kind.startswith("text/html")
        if status == 206 and not is_page:
            match = _CONTENT_RANGE.match(headers.get("content-range", ""))
            if match and int(match[1]) == offset and int(match[2]) == offset + length - 1:
                return
            raise PrerequisiteError(
                f"the hub sent another range of {shown(self.name)} than it was asked for",
                why=f"found {headers.get('content-range')!r}, expected bytes {offset}-{offset + length - 1}",
                fix="check the address of the hub, or a proxy in between",
            )
        if status == 200 and not is_page:
            if offset == 0 and length == self.size_bytes and headers.get("content-length") == str(length):
                return  # the whole of a small file was asked for and comes
            raise PrerequisiteError(
                f"the hub ignores ranges: it would send all {self.size_bytes:,} bytes of {shown(self.name)}",
                why=f"found status 200 for a range of {length:,} bytes, expected 206",
                fix="check the address of the hub, or download the checkpoint and inspect the folder",
            )
        if is_page and status < 300:
            raise PrerequisiteError(
                "the hub answers with a web page instead of the file",
                why=f"{self._url} has content type {kind!r}; a login page of a network does that",
                fix="open the address in a browser, and check the address of the hub",
            )
        if status == 416:
            raise CheckpointError(
                f"{shown(self.name)} is shorter than the hub's listing says",
                why=f"range {offset:,} to {offset + length - 1:,} does not exist, the listing says {self.size_bytes:,}",
                fix="try again; the repository may just be changing",
            )
        error = _refusal(status, self._hub.repo, None, shown(self.name))
        if status in _RETRIED:
            raise _Busy(error)
        raise error

    def close(self) -> None:
        """Nothing is held open."""


class _Busy(Exception):
    """An answer that may be better in a moment."""

    def __init__(self, error: FreeholdError) -> None:
        super().__init__(error.what)
        self.error = error


@contextmanager
def hub_errors(repo: str, revision: str | None, *, is_retried: bool = False) -> Iterator[None]:
    """Turn what huggingface_hub raises into errors that say what to do.

    Args:
        repo: ``owner/name``.
        revision: What was asked for.
        is_retried: Raise what may pass as :class:`_Busy`.
    """
    from huggingface_hub import errors

    try:
        yield
    except errors.OfflineModeIsEnabled:
        raise PrerequisiteError(
            f"{shown(repo)} cannot be reached: huggingface_hub is in offline mode",
            why="HF_HUB_OFFLINE is set",
            fix="unset it, or name a local folder",
        ) from None
    except errors.HFValidationError as error:
        raise InputError(
            f"{shown(repo)} is no name of a repository", why=shown(str(error)), fix="write it like `hf:owner/name`"
        ) from None
    except errors.RevisionNotFoundError:
        raise InputError(
            f"{shown(repo)} has no revision {shown(revision or '')}",
            why="the hub knows the repository, but no branch, tag or commit of that name",
            fix="check the spelling, or leave out the revision",
        ) from None
    except errors.HfHubHTTPError as error:
        raise _refusal(error.response.status_code, repo, revision, shown(repo)) from None
    except errors.LocalEntryNotFoundError as error:
        raise _unreachable(repo, error) from None
    except errors.HTTPError as error:  # type: ignore[attr-defined] # its HTTP library's own; that library changed once
        problem = _unreachable(repo, error)
        raise (_Busy(problem) if is_retried else problem) from None
    except (ValueError, TypeError, KeyError) as error:
        raise PrerequisiteError(
            f"the hub's answer about {shown(repo)} is no data",
            why=f"{shown(str(error)) or type(error).__name__}; a login page or another server may answer there",
            fix="open the hub's address in a browser, and check HF_ENDPOINT if it is set",
        ) from None


def _refusal(status: int, repo: str, revision: str | None, what: str) -> FreeholdError:
    if status in (401, 403):
        return PrerequisiteError(
            f"the hub refuses {what} (status {status})",
            why="the repository is gated, private, or does not exist; the hub does not say which",
            fix=f"accept the licence on the page of {shown(repo)}, then `hf auth login`",
        )
    if status == 404:
        return InputError(
            f"the hub has no {what}",
            why="status 404" + (f" for revision {shown(revision)}" if revision else ""),
            fix="check the spelling: `hf:owner/name`, or `hf:owner/name@revision`",
        )
    if status == 429:
        return PrerequisiteError(
            "the hub asks to slow down (status 429)",
            why="too many requests came from this address or token",
            fix="wait some minutes, or log in: `hf auth login`",
        )
    return PrerequisiteError(
        f"the hub does not serve {what} (status {status})",
        why="a server error is the hub's own trouble" if status >= 500 else "this status was not expected",
        fix="try again later",
    )


def _unreachable(repo: str, error: BaseException) -> PrerequisiteError:
    return PrerequisiteError(
        f"the hub cannot be reached for {shown(repo)}",
        why=shown(str(error).splitlines()[0] if str(error) else type(error).__name__),
        fix="check the network and the address of the hub, or name a local folder",
    )


def _plain(token: Token) -> Any:
    """A token as huggingface_hub takes it."""
    return token.reveal() if isinstance(token, Secret) else token


def _is_weights(name: str) -> bool:
    return name.endswith((".gguf", ".safetensors"))

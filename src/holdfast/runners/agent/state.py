"""What a runner keeps on disk: its token, reports that nobody has heard, and that it is the only one."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import msgspec

from holdfast.errors import FolderUnwritable, RunnerBusy
from holdfast.runners.agent.disposal import discard
from holdfast.runners.agent.messages import Fence, Report

# More than any token takes, in bytes.
TOKEN_ROOM = 512


class StateFolder:
    """The folder of one runner, readable by its user alone.

    While it is entered no other process can be the same runner.  Raises `RunnerBusy` and
    `FolderUnwritable`.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._lock: int | None = None

    def __enter__(self) -> Self:
        with self._writing():
            for folder in (self._folder, self._reports):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.__exit__()
            raise RunnerBusy(self._name) from error
        # What a killed runner left; its programs died with it.
        discard(self._folder / "assignments")
        return self

    def __exit__(self, *_: object) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FolderUnwritable(str(self._folder), error.strerror or str(error)) from error

    @property
    def _token(self) -> Path:
        return self._folder / "token"

    @property
    def _reports(self) -> Path:
        return self._folder / "reports"

    def token(self) -> str | None:
        """Return the token of the last registration, or None."""
        try:
            return self._token.read_text().strip() or None
        except FileNotFoundError:
            return None

    def make_room(self) -> None:
        """Take the room of a token: it must not get lost once there is one.  Raises `FolderUnwritable`."""
        with self._writing():
            _fill(_draft(self._token), b" " * TOKEN_ROOM)

    def keep_token(self, token: str) -> None:
        """Keep a token for the next start, in the room that was made; raises `FolderUnwritable`."""
        with self._writing():
            self._write(self._token, token.encode())

    def keep_report(self, fence: Fence, report: Report) -> None:
        """Keep a report until the server has heard it; its logs cannot be sent by another process."""
        self._write(self._report_file(fence), msgspec.json.encode(report))

    def drop_report(self, fence: Fence) -> None:
        """Forget a report: the server has heard it."""
        self._report_file(fence).unlink(missing_ok=True)

    def reports(self) -> dict[Fence, Report]:
        """Return the reports that nobody has heard."""
        found: dict[Fence, Report] = {}
        for path in sorted(self._reports.glob("*-*.json")):
            # A report that was cut off by a full disk tells nothing.
            with suppress(ValueError, msgspec.DecodeError):
                job, attempt = map(int, path.stem.split("-"))
                found[Fence(job, attempt)] = msgspec.json.decode(path.read_bytes(), type=Report)
        return found

    def _report_file(self, fence: Fence) -> Path:
        return self._reports / f"{fence.job_id}-{fence.attempt}.json"

    def _write(self, path: Path, data: bytes) -> None:
        draft = _draft(path)
        try:
            _fill(draft, data)
            draft.replace(path)
        except OSError:
            # The half of it that a full disk took would only be in the way.
            with suppress(OSError):
                draft.unlink()
            raise


def _draft(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


def _fill(path: Path, data: bytes) -> None:
    """Write a file, in the place that it has already where there is one: a full disk takes that."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())

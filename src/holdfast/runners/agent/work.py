"""What an assignment comes to on this machine: a program to run, and what its end means."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Self

from holdfast.runners.agent.messages import Report
from holdfast.runners.agent.process import Command, Program, ProgramEnd

# Called with a fraction from 0 to 1 and a line about it.
Progress = Callable[[float, str | None], None]


class Work(ABC):
    """A program with what is to be known around it.  Enter it before the program starts.

    *channel* is a file descriptor that the program inherits; *timeout* is in seconds; *secrets* are masked in
    its output; *artifacts* are globs of files to keep.
    """

    channel: int | None = None
    secrets: Sequence[bytes] = ()
    artifacts: Sequence[str] = ()

    def __init__(self, command: Command, timeout: float) -> None:
        self.command, self.timeout = command, timeout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    @property
    def is_decided(self) -> bool:
        """True where the work has said itself what it came to: a stop on its way changes nothing of that."""
        return False

    async def attend(self, program: Program) -> ProgramEnd:
        """Wait for the program's end."""
        return await program.wait()

    @abstractmethod
    def report(self, end: ProgramEnd, tail: str, artifacts: list[str]) -> Report:
        """Return what the end means; *tail* is the end of what the program complained."""

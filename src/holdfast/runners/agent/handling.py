"""Runs a handler of an application in a process of its own, under the same keeper as any command."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from socket import socketpair
from typing import Any

import msgspec

from holdfast.model.job import ClaimedJob
from holdfast.runners.agent.command import environment, report_of
from holdfast.runners.agent.config import AgentConfig
from holdfast.runners.agent.messages import Assignment, Outcome, Report
from holdfast.runners.agent.process import Command, Program, ProgramEnd
from holdfast.runners.agent.spec import Spec
from holdfast.runners.agent.work import Progress, Work
from holdfast.runtime.settings import PREFIX
from holdfast.worker import wire

# How long the last words of a dead handler may take, in seconds.
LONGEST_ECHO = 1.0


def _own(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the application may read: all that it had when the runner imported it, but no settings.

    It is the operator's own code, and finds its own settings there; ours may be secret.
    """
    return {name: value for name, value in environment.items() if not name.startswith(PREFIX)}


class HandlerWork(Work):
    """A kind of the application that this runner serves.

    The handler's end comes over a line of its own, in the frames that a process worker and its children use;
    what it prints is the log.
    """

    def __init__(
        self,
        assignment: Assignment,
        spec: Spec,
        folder: Path,
        config: AgentConfig,
        progress: Progress,
    ) -> None:
        self._assignment, self._spec, self._progress = assignment, spec, progress
        self._ours, self._theirs = socketpair()
        self.channel = self._theirs.fileno()
        self._ending: wire.Ending | None = None
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            f"from holdfast.runners.agent.handler import main; main({config.app!r}, {self.channel})"
        )
        command = Command(
            argv=[sys.executable, "-u", "-c", code],
            cwd=folder / "work",
            env=_own(config.environment) | environment(assignment, folder, config.environment),
        )
        super().__init__(command, spec.timeout)

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            stack.callback(self._ours.close)
            stack.callback(self._theirs.close)

    @property
    def is_decided(self) -> bool:
        """True where the handler has returned, or raised for good: as on a worker, that is what counts."""
        match self._ending:
            case None:
                return False
            case wire.Raised(poison=poison):
                return poison
        return True

    async def attend(self, program: Program) -> ProgramEnd:
        """Tell the handler what to do, hear what comes of it, and wait for its end."""
        self._theirs.close()
        reader, writer = await asyncio.open_unix_connection(sock=self._ours)
        talk = asyncio.create_task(self._talk(reader), name="holdfast handler")
        try:
            writer.write(wire.frame(wire.Call("", "", self._claimed())))
            end = await program.wait()
            # Everybody who could speak on the line is dead: what is left is on its way.
            await asyncio.wait({talk}, timeout=LONGEST_ECHO)
            return end
        finally:
            talk.cancel()
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader) -> None:
        try:
            while self._ending is None:
                header = await reader.readexactly(wire.HEADER_BYTES)
                self._hear(wire.from_child(await reader.readexactly(wire.body_bytes(header))))
        except (asyncio.IncompleteReadError, OSError, ValueError, msgspec.DecodeError):
            # It died, or said what nobody understands: its end tells the rest.
            return

    def _hear(self, message: wire.FromChild) -> None:
        match message:
            case wire.Progress(fraction, note):
                self._progress(fraction, note)
            case wire.Returned() | wire.Snoozed() | wire.Cancelled() | wire.Retried() | wire.Raised():
                self._ending = message

    def report(self, end: ProgramEnd, tail: str, artifacts: list[str]) -> Report:
        """Return what the handler's end means; one that died without a word failed as a command does."""
        match self._ending:
            case wire.Returned(result):
                value = None if result is None else msgspec.json.decode(result)
                return Report(outcome=Outcome.COMPLETED, result=value)
            case wire.Cancelled(reason):
                # Nobody has to have asked for it: the handler itself wants no more of this job.
                return Report(outcome=Outcome.CANCELLED, reason=reason, retry=False)
            case wire.Snoozed(seconds, reason):
                return Report(outcome=Outcome.RELEASED, reason=reason, delay=seconds)
            case wire.Retried(delay, reason):
                return Report(outcome=Outcome.FAILED, reason=reason, error=reason, delay=delay)
            case wire.Raised(line, trace, poison=poison):
                return Report(outcome=Outcome.FAILED, reason=line, error=trace, retry=not poison)
        report = report_of(end, tail, artifacts)
        if report.outcome is Outcome.COMPLETED:
            reason = "the handler's process ended before its handler did"
            return Report(outcome=Outcome.FAILED, reason=reason, error=tail or reason)
        return msgspec.structs.replace(report, result=None)

    def _claimed(self) -> ClaimedJob:
        job, now = self._assignment, datetime.now(UTC)
        facts: dict[str, Any] = {
            name: getattr(job, name)
            for name in ("attempt", "failures", "kind", "queue", "priority", "max_attempts", "tags", "trace")
        }
        return ClaimedJob(
            id=job.job,
            timeout=self._spec.timeout,
            args=bytes(self._spec.args).decode(),
            retry=None,
            meta=msgspec.json.encode(job.meta).decode(),
            enqueued=(job.enqueued_at or now).timestamp(),
            claimed=(job.offered_at or now).timestamp(),
            started=True,
            **facts,
        )

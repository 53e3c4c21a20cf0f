"""Runs one assignment from its acceptance to its report."""

from __future__ import annotations

import asyncio
import errno
import time

from holdfast.errors import ProgramRefused, ServerRefused, ServerUnavailable, SpecInvalid
from holdfast.rules.telling import one_line
from holdfast.runners.agent.artifacts import FileSender
from holdfast.runners.agent.bench import Bench
from holdfast.runners.agent.command import make_folders, result_of
from holdfast.runners.agent.dispatch import work_for
from holdfast.runners.agent.disposal import discard
from holdfast.runners.agent.ladder import Ladder
from holdfast.runners.agent.messages import Assignment, CancelOrder, Fence, Held, Outcome, Report, Rung
from holdfast.runners.agent.process import Program, ProgramEnd
from holdfast.runners.agent.reports import acceptable, rested
from holdfast.runners.agent.shipping import LogShipper
from holdfast.runners.agent.spec import read_spec
from holdfast.runners.agent.stages import ACCEPTED, ENDED, RUNNING, Cause, Phase
from holdfast.runners.agent.work import Work

# How long the logs of an ended program may take while the server can be reached, in seconds.
LOG_PATIENCE = 60.0
# How soon a spec that could not be fetched is asked for again, in seconds.
PAUSE = 1.0
# What fails by these is short on this machine, which is no fault of the job.
SHORTAGES = frozenset({errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EROFS})
# How long a job rests that could not be begun for that, and its runner too, in seconds: the job would be
# offered here again at once, and the runner would send one job after the other to rest.
REST = 60.0
# What the server takes of a note, in characters.
LONGEST_NOTE = 1000
# Progress is told this often at most, in seconds.
PROGRESS_EVERY = 1.0


class Execution:
    """One assignment in the hands of this runner.

    *report* is there once it has ended; an assignment that was lost ends without one.
    """

    def __init__(self, assignment: Assignment, bench: Bench) -> None:
        self.assignment, self._bench = assignment, bench
        self.fence: Fence = assignment.fence
        self.state = ACCEPTED
        self.report: Report | None = None
        self.rung: Rung | None = None
        self.cause: Cause | None = None
        # False once the server has said that it is not this runner's any more.
        self.is_wanted = True
        self._order: CancelOrder | None = None
        self._ladder: Ladder | None = None
        self._phase = Phase.PROGRAM
        self._is_kept = False
        self._progress: tuple[float, str | None] | None = None
        # The last progress that a sync took along.
        self._newest: Held | None = None
        self._folder = bench.config.folder / "assignments" / f"{self.fence.job_id}-{self.fence.attempt}"
        self._logs = LogShipper(
            bench.connection,
            assignment,
            self._folder / "logs",
            bound=bench.config.log_buffer,
            events=bench.events,
        )
        self._files = FileSender(bench.connection, assignment, self._logs.say)

    @property
    def outcome(self) -> str:
        """The word for what it came to, as far as that is known."""
        return "lost" if self.report is None else self.report.outcome.value

    def held(self) -> Held:
        """Return what a sync says of it."""
        alive, self._logs.alive = self._logs.alive, False
        (progress, note), self._progress = self._progress or (None, None), None
        said = Held(
            job=self.fence.job_id,
            attempt=self.fence.attempt,
            state=self.state,
            progress=progress,
            note=note,
            alive=alive,
            rung=self.rung,
        )
        self._newest = self._newest if progress is None else said
        return said

    def untold(self, said: Held) -> None:
        """Say again what a sync took along and nobody may have heard, unless there is newer progress."""
        self._logs.alive = self._logs.alive or said.alive
        if self._progress is None and said.progress is not None and said is self._newest:
            self.progress(said.progress, said.note)

    def cancel(self, order: CancelOrder) -> None:
        """Obey a cancel; safe to repeat."""
        if self._order is None and self._phase < Phase.LOG:
            self._order = order
            self._step(Rung.ACKNOWLEDGED)
            self._bench.events.emit("cancel.heard", fence=self.fence, reason=order.reason)
            self.interrupt(Cause.CANCEL, order.grace)

    def interrupt(self, cause: Cause, grace: float | None = None) -> None:
        """End the program from outside; *grace* is what lies between SIGINT and SIGKILL, in seconds.

        One that has ended by itself has come to what it has come to: no more of its files are sent.
        """
        self._files.stop()
        if self._phase > Phase.PROGRAM and cause is not Cause.LOST:
            return
        self.cause = max(cause, self.cause or cause)
        if self.cause is Cause.LOST:
            self._logs.give_up()
        if self._ladder is not None:
            self._ladder.begin(self._grace if grace is None else grace)

    def lose(self, grace: float) -> None:
        """Stop what another runner may have got meanwhile; an end is told, without what it lacks."""
        if self._phase > Phase.PROGRAM:
            self._files.stop()
            self._logs.give_up()
        else:
            self.interrupt(Cause.LOST, grace)

    def progress(self, fraction: float, note: str | None) -> None:
        """Note how far the work is."""
        if self._progress is None:
            # A handler may say so a thousand times a second.
            asyncio.get_running_loop().call_later(PROGRESS_EVERY, self._bench.changed)
        self._progress = (fraction, note and note[:LONGEST_NOTE])
        self._logs.alive = True

    async def run(self) -> None:
        """Run it to its end; then `report` is there, save where nobody wants one."""
        self._bench.events.emit("assignment.begun", fence=self.fence, kind=self.assignment.kind)
        try:
            report = rested(await self._reported(), self.assignment, self._bench.config.backoffs)
            self._phase = Phase.LOG
            if self._is_kept or not self._logs.is_delivered:
                self._keep(report)
            await self._ship()
            wanted = self.cause is not Cause.LOST
            ended = acceptable(report, self.rung, self._logs.totals) if wanted else None
        finally:
            self._phase = Phase.LOG
            await self._logs.stop()
            self._logs.end()
            await asyncio.to_thread(discard, self._folder)
        if ended is not None:
            self.report, self.state = ended, ENDED
        self._bench.events.emit(
            "assignment.ended", fence=self.fence, kind=self.assignment.kind, outcome=self.outcome
        )

    def _keep(self, report: Report) -> None:
        """Keep an end on disk: files and log may take long to arrive, or for ever, but the work is done."""
        if self.cause is not Cause.LOST:
            self._bench.keep(self.fence, acceptable(report, self.rung, self._logs.totals))
            self._is_kept = True

    async def _reported(self) -> Report:
        try:
            make_folders(self._folder)
            await self._logs.start()
            return await self._performed()
        except SpecInvalid as error:
            return Report(outcome=Outcome.FAILED, reason=error.reason, error=str(error), retry=False)
        except (ProgramRefused, OSError) as error:
            if self.state == ACCEPTED and getattr(error, "errno", None) in SHORTAGES:
                reason = f"this runner could not begin it: {one_line(error)}"
                self._bench.events.emit("runner.rests", seconds=REST, error=error)
                self._bench.rest(REST)
                return Report(outcome=Outcome.RELEASED, reason=reason, delay=REST)
            return Report(outcome=Outcome.FAILED, reason=one_line(error), error=str(error))
        finally:
            self._logs.close()

    async def _performed(self) -> Report:
        assignment, config = self.assignment, self._bench.config
        text = assignment.spec if assignment.spec is not None else await self._fetched()
        if text is None:
            return self._stopped(None)
        work = work_for(
            assignment, read_spec(text, assignment.spec_sha256), self._folder, config, self.progress
        )
        with work:
            self._logs.mask([*work.secrets, assignment.token.encode(), self._bench.connection.token.encode()])
            end = await self._run(work) if await self._may_begin() else None
            self._logs.close()
            if end is None or (self.cause is not None and not work.is_decided):
                return self._stopped(end)
            report = work.report(end, self._logs.tail, [])
            if work.artifacts:
                self._keep(report)
                kept = await self._files.run(self._folder / "work", work.artifacts, config.artifacts)
                report = work.report(end, self._logs.tail, kept)
            return report

    async def _may_begin(self) -> bool:
        """Tell whether nobody has stopped it yet; the server is told first of what must not run twice.

        It would be given to another runner if this one died with it begun unheard.
        """
        if self.assignment.on_loss == "retry":
            return self.cause is None
        number = self._bench.number()
        while self.cause is None:
            try:
                await self._bench.connection.begin(self.assignment, number)
            except ServerRefused:
                self.interrupt(Cause.LOST)
            except ServerUnavailable:
                await asyncio.sleep(PAUSE)
            else:
                return self.cause is None
        return False

    async def _fetched(self) -> str | None:
        """Fetch a spec that was too long for the offer; None: the assignment is stopped already."""
        while self.cause is None:
            try:
                return await self._bench.connection.spec(self.assignment)
            except ServerRefused as error:
                raise SpecInvalid("spec-refused", error.problem) from error
            except ServerUnavailable:
                await asyncio.sleep(PAUSE)
        return None

    async def _run(self, work: Work) -> ProgramEnd:
        program = await Program.start(
            work.command,
            self._logs.write,
            channel=work.channel,
            until=self._until if self.assignment.on_loss == "retry" else None,
        )
        self.state = RUNNING
        self._ladder = Ladder(program, self._step)
        if self.cause is not None:
            self._ladder.begin(self._grace)
        self._bench.changed()
        timer = asyncio.get_running_loop().call_later(work.timeout, self.interrupt, Cause.TIMEOUT)
        try:
            end = await work.attend(program)
            self._bench.events.emit("program.ended", fence=self.fence, code=end.code, orphans=end.orphans)
            return end
        finally:
            timer.cancel()
            self._ladder.stop()
            self._phase = Phase.FILES

    def _stopped(self, end: ProgramEnd | None) -> Report:
        result = None if end is None else result_of(end, [])
        match self.cause:
            case Cause.TIMEOUT:
                reason = f"timed out after {self.assignment.timeout:g} s"
                return Report(
                    outcome=Outcome.FAILED, reason=reason, error=self._logs.tail or reason, result=result
                )
            case Cause.CANCEL:
                reason = (self._order and self._order.reason) or "cancel requested"
                return Report(outcome=Outcome.CANCELLED, reason=reason, result=result)
        return Report(outcome=Outcome.RELEASED, reason="the runner is stopping", result=result)

    async def _ship(self) -> None:
        """Bring the rest of the logs to the server; a rest that it does not take in time is given up."""
        while not await self._logs.delivered(LOG_PATIENCE):
            if self._logs.refused or self._bench.in_contact():
                return

    def _step(self, rung: Rung) -> None:
        self.rung = rung
        self._bench.events.emit("assignment.stopping", fence=self.fence, rung=rung.value)
        self._bench.changed()

    def _until(self) -> float:
        """Return when nothing of it may be left, by the monotonic clock: another runner may begin it then."""
        intervals = self._bench.intervals
        return time.monotonic() - self._bench.silence() + intervals.lost_after + intervals.loss_grace

    @property
    def _grace(self) -> float:
        order = self._order.grace if self._order is not None else None
        for grace in (order, self.assignment.grace):
            if grace is not None:
                return grace
        return self._bench.intervals.cancel_grace

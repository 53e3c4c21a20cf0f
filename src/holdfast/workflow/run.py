"""What the code of a workflow may do with its run."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeVar, Unpack, overload
from uuid import UUID

import msgspec

from holdfast.app.handler import JobRequest
from holdfast.app.keywords import ChildOptions
from holdfast.app.options import Options, checked_text, chosen, resolved, resolved_each, seconds_from
from holdfast.app.signals import signal_statement
from holdfast.app.workflow import Workflow
from holdfast.errors import OptionInvalid
from holdfast.model.blob import Blob
from holdfast.model.step import StepKind, StepState
from holdfast.rules.progress import told_progress
from holdfast.rules.seeds import drawn_float, drawn_uuid
from holdfast.workflow import steps, waits
from holdfast.workflow.blobs import fetch
from holdfast.workflow.branches import Branches
from holdfast.workflow.calls import made_call
from holdfast.workflow.ends import Continued
from holdfast.workflow.moments import Moments
from holdfast.workflow.options import StepKeywords
from holdfast.workflow.replay import Replay

R = TypeVar("R")
MOST_CHILDREN = 100_000


class Run:
    """One execution of a workflow, as the first argument of its code.

    The code is replayed from its start whenever the run goes on; whatever it asks of its Run is then
    answered from memory, by name and order within its branch.
    """

    def __init__(self, replay: Replay, workflow: Workflow[Any, Any], moments: Moments) -> None:
        self._replay, self._workflow, self._moments = replay, workflow, moments

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.kind} attempt {self.attempt}>"

    @property
    def id(self) -> int:
        """The id of the run, which is that of its job."""
        return self._replay.ledger.claimed.id

    @property
    def attempt(self) -> int:
        """The number of this attempt; it grows whenever the run goes on, so let nothing depend on it."""
        return self._replay.ledger.claimed.attempt

    @property
    def kind(self) -> str:
        """The kind under which the run was enqueued."""
        return self._replay.ledger.claimed.kind

    @property
    def queue(self) -> str:
        """The queue it was claimed from."""
        return self._replay.ledger.claimed.queue

    @property
    def failures(self) -> int:
        """How many attempts have failed: lost workers, timeouts, a database that was away."""
        return self._replay.ledger.claimed.failures

    @property
    def trace(self) -> str | None:
        """The trace context given at enqueue, such as a W3C ``traceparent``."""
        return self._replay.ledger.claimed.trace

    @property
    def enqueued_at(self) -> datetime:
        """When the run was enqueued."""
        return self._replay.ledger.claimed.enqueued_at

    @property
    def tags(self) -> list[str]:
        """The tags given at enqueue."""
        return self._replay.ledger.claimed.tags or []

    @property
    def meta(self) -> Any:
        """The meta data given at enqueue."""
        return msgspec.json.decode(self._replay.ledger.claimed.meta)

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines are kept with the attempt; a replay logs them again."""
        return logging.LoggerAdapter(logging.getLogger("holdfast.job"), {"job_id": self.id})

    def progress(self, fraction: float, note: str | None = None) -> None:
        """Say how far the run is, from 0 to 1; raises `OptionInvalid` for what is no number."""
        self._replay.ledger.progress(*told_progress(fraction, note))

    # --- steps

    @overload
    async def step(
        self, function: Callable[..., Awaitable[R]], *args: Any, **options: Unpack[StepKeywords]
    ) -> R: ...

    @overload
    async def step(self, function: Callable[..., R], *args: Any, **options: Unpack[StepKeywords]) -> R: ...

    async def step(self, function: Callable[..., Any], *args: Any, **options: Unpack[StepKeywords]) -> Any:
        """Call a function or a handler once and for all: its result, or its error, is remembered.

        *name* stands for it in the record (the function's name where it is not given); *kwargs* are arguments
        by name.  *max_attempts*, *retry* and *timeout* are as for a job; where they are not given, it is one
        try within the run's own timeout, or the policy of a handler.  *executor* is ``loop``, ``thread`` or
        ``process``.  A `Retry` that the function returns is a failed try, a `Snooze` one that does not count;
        a `Cancel` fails the step at once.
        With *transaction* an async function gets a connection (asyncpg's) as its first argument, and what it
        writes commits with the record; a sync one is refused with `OptionInvalid`.
        """
        return await steps.perform(self._replay, made_call(function, args, options))

    async def blob(self, function: Callable[..., Any], *args: Any, **options: Unpack[StepKeywords]) -> Blob:
        """Call a step whose result (bytes or a JSON value, up to 64 MiB) is kept apart; returns a `Blob`."""
        call = made_call(function, args, options, apart=True)
        kept: Blob = await steps.perform(self._replay, call)
        return kept

    async def read(self, blob: Blob) -> Any:
        """Return the data of a blob; it lives as long as the run that has kept it.  Raises `BlobNotFound`."""
        return await fetch(self._replay, blob)

    def on_failure(self, function: Callable[..., Any], *args: Any, **options: Unpack[StepKeywords]) -> None:
        """Have a step run if the run fails or is cancelled, of each branch the last one registered first.

        Where lost workers or timeouts have used up the run's attempts, it gets one more, for this alone.
        """
        self._replay.branch("on_failure")
        self._replay.makeups.append(made_call(function, args, options))

    def branches(self) -> Branches:
        """Begin branches that go on at once: ``async with run.branches() as branches``."""
        return Branches(self._replay)

    def enqueue(self, request: JobRequest, **options: Unpack[ChildOptions]) -> None:
        """Enqueue a job, once, together with whatever the run records next or with its end."""
        waits.checked_requests([request])
        spot = self._replay.enter(StepKind.ENQUEUE, request.kind)
        if not spot.is_final:
            self._replay.remember(spot.note(StepState.COMPLETED))
            if not self._replay.frozen:
                self._replay.notebook.posts.append((spot.branch.name, resolved(request, _for_child(options))))

    async def signal(self, run_id: int, name: str, payload: Any = None) -> None:
        """Send a signal to another run, once, as a step; raises `RunEnded`, `InputInvalid`."""
        key = f"run {self.id} {self.uuid()}"
        statement = signal_statement(run_id, name, payload, key)

        async def send(*_shown: Any) -> None:
            await self._replay.ledger.ask(statement)

        call = made_call(send, (run_id, payload), {"name": f"signal {name}"[:200]})
        await steps.perform(self._replay, call)

    # --- waits

    async def sleep(self, time: timedelta | float) -> None:
        """Sleep for a timedelta or seconds, counted from the first time on.

        The run holds no slot and no memory meanwhile, but for a sleep of less than a second.
        """
        seconds = seconds_from("time", time)
        await waits.sleep(self._replay, seconds, f"the end of a sleep of {seconds:g} s")

    async def sleep_until(self, moment: datetime) -> None:
        """Sleep until a moment with a time zone, at most ten years from now; one that is past is no error."""
        if not isinstance(moment, datetime) or moment.tzinfo is None:
            raise OptionInvalid("moment", moment, "give a datetime with a time zone, such as run.now()")
        # Behind the year 9999, to which it could drift, nobody can read a timer any more.
        seconds = seconds_from("moment", max(0.0, (moment - self._moments.now()).total_seconds()))
        await waits.sleep(self._replay, seconds, f"{moment.isoformat()}")

    async def wait_signal(self, name: str, *, timeout: timedelta | float | None = None) -> Any:
        """Return the payload of the next signal of that name, sent before or after.

        Raises `SignalTimeout` after *timeout*, a timedelta or seconds, counted from the first time on.
        """
        checked_text("name", name, most=200)
        limit = None if timeout is None else seconds_from("timeout", timeout)
        return await waits.signal(self._replay, name, limit)

    async def child(
        self, request: JobRequest, *, policy: str = "cancel", **options: Unpack[ChildOptions]
    ) -> Any:
        """Enqueue a job as a child of the run and return its result as plain JSON; raises `ChildFailed`.

        By *policy* it is cancelled where its parent is cancelled, discarded or fails (``cancel``), or goes on
        (``abandon``).
        """
        waits.checked_requests([request])
        jobs = [resolved(request, _for_child(options))]
        ends = await waits.family(
            self._replay, StepKind.CHILD, request.kind, jobs, _detail(policy, [request])
        )
        return waits.results(ends)[0]

    async def children(
        self,
        requests: Sequence[JobRequest],
        *,
        policy: str = "cancel",
        return_failures: bool = False,
        **options: Unpack[ChildOptions],
    ) -> list[Any]:
        """Enqueue many children at once and return their results in order, when all have ended.

        Raises `ChildFailed` if one has failed; with *return_failures* it stands among the results instead.
        """
        waits.checked_requests(requests)
        if len(requests) > MOST_CHILDREN:
            raise OptionInvalid("requests", len(requests), f"give at most {MOST_CHILDREN:,} at once")
        jobs = list(resolved_each(requests, _for_child(options)))
        if not jobs:
            return []
        name = f"{len(jobs)} {requests[0].kind}"
        ends = await waits.family(self._replay, StepKind.CHILDREN, name, jobs, _detail(policy, requests))
        if return_failures:
            return [waits.result_or_failure(end) for end in ends]
        return waits.results(ends)

    # --- values

    def now(self) -> datetime:
        """Return the time as it was when the run first asked; a step called again is told the same."""
        spot = self._replay.enter(StepKind.NOW, "now")
        if spot.entry is not None:
            return datetime.fromisoformat(msgspec.json.decode(spot.entry.result or '""'))
        moment = self._moments.now()
        text = msgspec.json.encode(moment.isoformat()).decode()
        self._replay.remember(spot.note(StepState.COMPLETED, result=text))
        return moment

    def random(self) -> float:
        """Return a number from 0 to below 1, the same at every replay."""
        branch = self._replay.branch("random")
        branch.draws += 1
        return drawn_float(self._replay.history.seed, branch.name, branch.draws)

    def uuid(self) -> UUID:
        """Return a UUID, the same at every replay: an idempotency key for what a step asks of others."""
        branch = self._replay.branch("uuid")
        branch.draws += 1
        return drawn_uuid(self._replay.history.seed, branch.name, branch.draws)

    def patched(self, name: str) -> bool:
        """Return whether this run takes the new way through code that was changed under it.

        True for runs that come here for the first time, False for those that have gone on from here before.
        """
        checked_text("name", name, most=200)
        return self._replay.patched(name)

    # --- ends

    def continue_as_new(self, /, *args: Any, **kwargs: Any) -> NoReturn:
        """Begin anew under the same id with other arguments and an empty memory, for runs that never end.

        Signals that were not read stay.  Raises `ArgumentsInvalid`.
        """
        text = self._workflow.signature.encode(args, kwargs)
        branch = self._replay.branch("continue_as_new")
        place, met = self._replay.ahead(branch)
        if met is not None and met.kind is not StepKind.CANCEL:
            self._replay.park(branch.name, place, recorded=str(met), asked="to begin anew")
        self._replay.end(Continued(text))
        raise AssertionError


def _for_child(options: ChildOptions) -> Options:
    return chosen(options, ChildOptions.__annotations__)


def _detail(policy: str, requests: Sequence[JobRequest]) -> dict[str, Any]:
    runs = any(request.is_run for request in requests)
    return {"policy": waits.checked_policy(policy), "count": len(requests), "runs": runs}

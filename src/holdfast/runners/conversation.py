"""What runners say of their assignments, and what they are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from holdfast.client.token_operator import token_hash, token_text
from holdfast.errors import AssignmentStale, HoldfastError, JobNotFound, LogsIncomplete
from holdfast.model.job import JobState
from holdfast.model.runner import Held, Runner
from holdfast.model.worker import WorkerState
from holdfast.rules.liveness import Intervals
from holdfast.rules.reconcile import Reconciled, reconcile
from holdfast.runners.dispatcher import Dispatcher, Offer
from holdfast.runners.ends import stale
from holdfast.runners.hearing import Hearing, RunnerCaller
from holdfast.runners.messages import (
    Claim,
    Claimed,
    Finish,
    Finished,
    HeldByRunner,
    Hold,
    Refusal,
    Stand,
    Sync,
    Synced,
    Word,
)
from holdfast.runners.reports import Reports
from holdfast.runners.taking import tell_taken
from holdfast.runners.telling import told_cancel, told_hold, told_intervals, told_offer, told_refusal
from holdfast.runtime.events import Events
from holdfast.store import assignments, offers
from holdfast.store.assignments import Life, Standing
from holdfast.store.attempts import Fence
from holdfast.store.batcher import Batcher
from holdfast.store.database import Database

# A runner that does not count its requests sends one after the other.
UNCOUNTED = 0


class Conversation:
    """Answers runners: sync, claim, and what they say of single assignments.

    Everything is decided by rows: whichever server process is asked, and however often, it answers the same.
    """

    def __init__(
        self,
        database: Database,
        intervals: Intervals,
        hearing: Hearing,
        dispatcher: Dispatcher,
        events: Events,
    ) -> None:
        self._database, self._intervals, self._events = database, intervals, events
        self._hearing, self._dispatcher = hearing, dispatcher
        self._reports = Reports(database, events)
        self._lives = Batcher(self._note_lives)
        self._holdings = Batcher(self._read_holdings)

    async def sync(self, caller: RunnerCaller, asked: Sync) -> Synced:
        """Take in what a runner holds, and answer what it should hold; raises `RunnerSuperseded`."""
        since = self._dispatcher.rings
        runner = await self._hearing.hear(caller)
        refused = await self._take_ends(runner, asked.held)
        refused += await self._take_lives(runner, asked)
        listed = {(one.job, one.attempt) for one in asked.held}
        held = await self._holdings.submit(runner.id)
        compared = reconcile(held, listed, asked.number)
        await self._take_missing(runner, compared)
        shown = await self._show_unseen(runner, asked, compared.unseen)
        free = 0 if asked.draining or runner.state is not WorkerState.ONLINE else asked.free - len(shown)
        urgent = bool(refused or shown or _undelivered(one for one in held if one.accepted))
        wait = 0.0 if urgent else min(asked.wait, self._intervals.sync_wait)
        shown += await self._new(runner, max(0, free), wait, since)
        return await self._synced(runner, caller, asked, shown, refused)

    async def claim(self, caller: RunnerCaller, asked: Claim) -> Claimed:
        """Offer a runner up to so many assignments, those first that it has not accepted."""
        since = self._dispatcher.rings
        runner = await self._hearing.hear(caller)
        held = await self._holdings.submit(runner.id)
        shown = await self._show_again([one for one in held if not one.accepted])
        if len(shown) < asked.count and runner.state is WorkerState.ONLINE:
            wait = 0.0 if shown else min(asked.wait, self._intervals.sync_wait)
            shown += await self._new(runner, asked.count - len(shown), wait, since)
            # A drain may have come meanwhile.
            runner = await self._hearing.look(caller)
        return Claimed(
            offers=[told_offer(one, self._intervals.cancel_grace) for one in shown[: asked.count]],
            draining=runner.state is WorkerState.DRAINING,
            server_time=datetime.now(UTC),
        )

    async def say(self, caller: RunnerCaller, fence: Fence, word: Word, *, running: bool) -> Stand:
        """Take in what a runner says of an assignment; raises `AssignmentStale`, `JobNotFound`."""
        term = await self._term(caller.only_for(fence))
        standing = await self._lives.submit(_life(caller.worker_id, term, fence, word, running=running))
        if standing is None:
            raise await stale(self._database, fence)
        if standing.cancel_requested_at is not None and not standing.cancel_delivered:
            await self._database.run(assignments.note_delivered([fence]))
        grace = self._intervals.cancel_grace
        cancel = told_cancel(standing.cancel_requested_at, standing.cancel_reason, grace)
        running = standing.state is JobState.RUNNING
        return Stand(fence.job_id, fence.attempt, "running" if running else "accepted", cancel)

    async def finish(self, caller: RunnerCaller, fence: Fence, report: Finish) -> Finished:
        """End an assignment; raises `AssignmentStale`, `LogsIncomplete`, `JobNotFound`."""
        await self._term(caller.only_for(fence))
        accepted = await self._reports.take(caller.worker_id, fence, report)
        return Finished(accepted.outcome, accepted.repeated)

    async def _term(self, caller: RunnerCaller) -> int:
        """Return the term in which a runner speaks; a token of one assignment is of none."""
        return 0 if caller.only is not None else (await self._hearing.hear(caller)).term

    async def _take_ends(self, runner: Runner, held: Sequence[HeldByRunner]) -> list[Refusal]:
        reports = [(Fence(one.job, one.attempt), one.report) for one in held if one.report is not None]
        told = await asyncio.gather(
            *(self._reports.take(runner.id, fence, report) for fence, report in reports),
            return_exceptions=True,
        )
        return [
            told_refusal(fence, _known(answer))
            for (fence, _), answer in zip(reports, told, strict=True)
            if isinstance(answer, BaseException)
        ]

    async def _take_lives(self, runner: Runner, asked: Sync) -> list[Refusal]:
        lives = [
            _life(
                *(runner.id, runner.term, Fence(one.job, one.attempt), one),
                running=one.state == "running",
                number=asked.number,
            )
            for one in asked.held
            if one.state != "ended"
        ]
        standings = await asyncio.gather(*(self._lives.submit(life) for life in lives))
        strangers = [life.fence for life, found in zip(lives, standings, strict=True) if found is None]
        return [told_refusal(fence, await stale(self._database, fence)) for fence in strangers]

    async def _take_missing(self, runner: Runner, compared: Reconciled) -> None:
        if compared.missing:
            fences = [Fence(one.job_id, one.attempt) for one in compared.missing]
            taken = await self._database.run(assignments.take_missing(fences, [runner.id] * len(fences)))
            tell_taken(self._events, taken)

    async def _show_unseen(self, runner: Runner, asked: Sync, unseen: Sequence[Held]) -> list[Offer]:
        """Show offers again that the runner has room for; one that is going gives them back."""
        if unseen and asked.draining:
            # An older request of this runner that still waits would be offered the same again.
            self._dispatcher.ring(runner.id)
            taken = await self._database.run(offers.release_offers(runner.id))
            tell_taken(self._events, taken)
            return []
        return await self._show_again(unseen[: asked.free])

    async def _show_again(self, unseen: Sequence[Held]) -> list[Offer]:
        if not unseen:
            return []
        texts = [token_text() for _ in unseen]
        fences = [Fence(one.job_id, one.attempt) for one in unseen]
        again = offers.show_offers_again(fences, [token_hash(text) for text in texts])
        tokens = dict(zip(fences, texts, strict=True))
        return [Offer(one, tokens[Fence(one.job_id, one.attempt)]) for one in await self._database.run(again)]

    async def _new(self, runner: Runner, want: int, wait: float, since: int) -> list[Offer]:
        if want == 0 and wait == 0:
            return []
        return await self._dispatcher.offers(runner, want, wait, since=since)

    async def _synced(
        self,
        runner: Runner,
        caller: RunnerCaller,
        asked: Sync,
        shown: Sequence[Offer],
        refused: list[Refusal],
    ) -> Synced:
        """Answer what the runner holds by now; what it was not offered in this answer it has to know."""
        runner = await self._hearing.look(caller)
        held = await self._holdings.submit(runner.id)
        news = _by_fence(shown)
        # Another process may have made offers meanwhile, whose own answer may reach nobody.
        room = 0 if asked.draining else max(0, asked.free - len(shown))
        others = [one for one in held if not one.accepted and Fence(one.job_id, one.attempt) not in news]
        news |= _by_fence(await self._show_again(others[:room]))
        grace = self._intervals.cancel_grace
        hold: list[Hold] = []
        listed = [one for one in held if one.accepted or Fence(one.job_id, one.attempt) in news]
        for one in listed:
            told = told_hold(one, grace)
            if not one.accepted:
                offer = news[Fence(one.job_id, one.attempt)]
                told = msgspec.structs.replace(told, assignment=told_offer(offer, grace))
            hold.append(told)
        if undelivered := _undelivered(listed):
            await self._database.run(assignments.note_delivered(undelivered))
        return Synced(
            number=asked.number,
            server_time=datetime.now(UTC),
            draining=runner.state is WorkerState.DRAINING,
            intervals=told_intervals(self._intervals),
            hold=hold,
            refused=refused,
        )

    async def _note_lives(self, lives: Sequence[Life]) -> Sequence[Standing | None]:
        answers: list[Standing | None] = [None] * len(lives)
        left = list(range(len(lives)))
        while left:
            # A statement meets each row once: of two words about one assignment, whosever they are, the
            # later one waits its turn.
            first = {lives[place].fence: place for place in reversed(left)}
            said = [lives[first[fence]] for fence in sorted(first)]
            standings = await self._database.run(assignments.note_life(said))
            for fence, place in first.items():
                answers[place] = standings.get(fence)
            left = [place for place in left if first[lives[place].fence] != place]
        return answers

    async def _read_holdings(self, worker_ids: Sequence[int]) -> Sequence[list[Held]]:
        held = await self._database.run(assignments.held_assignments(sorted(set(worker_ids))))
        found: dict[int, list[Held]] = {worker_id: [] for worker_id in worker_ids}
        for one in held:
            found[one.worker_id].append(one)
        return [found[worker_id] for worker_id in worker_ids]


def _by_fence(shown: Iterable[Offer]) -> dict[Fence, Offer]:
    return {Fence(one.assignment.job_id, one.assignment.attempt): one for one in shown}


def _undelivered(held: Iterable[Held]) -> list[Fence]:
    """Return what is to be cancelled and was not told so by any answer."""
    return [
        Fence(one.job_id, one.attempt)
        for one in held
        if one.cancel_requested_at is not None and not one.cancel_delivered
    ]


def _life(
    worker_id: int,
    term: int,
    fence: Fence,
    word: Word | HeldByRunner,
    *,
    running: bool,
    number: int | None = None,
) -> Life:
    said = word.number if isinstance(word, Word) else number
    return Life(
        fence=fence,
        worker_id=worker_id,
        term=term,
        number=UNCOUNTED if said is None else said,
        running=running,
        progress=word.progress,
        note=word.note,
        alive=word.alive,
        rung=word.rung,
    )


def _known(error: BaseException) -> HoldfastError:
    """Return an error that a runner can be told; raises any other one."""
    if not isinstance(error, (AssignmentStale, JobNotFound, LogsIncomplete)):
        raise error
    return error

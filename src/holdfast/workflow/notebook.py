"""What a run has to write: places to be remembered, and the jobs that are enqueued with them."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from holdfast.model.job import NewJob
from holdfast.model.step import StepKind, StepNote
from holdfast.store import jobs, steps
from holdfast.store.statement import Statement
from holdfast.workflow.cuts import unhurt
from holdfast.workflow.ledger import Ledger

# Times, patches, ends of sleeps and limits that cut a wait short: none of them is written when it comes.
TURNS = frozenset({StepKind.NOW, StepKind.PATCH, StepKind.SLEEP, StepKind.CANCEL})


class Notebook:
    """Collects places and jobs by branch, and writes them together with what is written next.

    *paused* is what the database told last: whether somebody wants the run paused.
    """

    def __init__(self, ledger: Ledger, *, paused: bool) -> None:
        self.ledger, self.paused = ledger, paused
        self.notes: list[StepNote] = []
        self.posts: list[tuple[str, NewJob]] = []

    @property
    def is_blank(self) -> bool:
        """True where nothing is left to write."""
        return not (self.notes or self.posts)

    @property
    def holds_turns(self) -> bool:
        """True where the code was told what decides its way, and after a death would be told anew."""
        return any(note.kind in TURNS for note in self.notes)

    async def write(
        self, notes: Sequence[StepNote] = (), *, own: str | None = None, living: Container[str] = ()
    ) -> None:
        """Write *notes* and all that was collected, but for what *living* branches other than *own* did.

        What came before *own* began is not to be missing where it has done something: places of the branches
        above it are written too.  They are kept until that is done, for those branches may be first.
        """
        written, new = self._taken(own, living)
        above = self._above(own)
        written = [*above, *written, *notes]
        if new:
            answers = await unhurt(self.ledger, self.ledger.commit(*self._posted(written, new)))
            self.paused = answers[0][self.ledger.fence.job_id]
        elif written:
            self.paused = await unhurt(self.ledger, self.ledger.save(written))
        if above:
            done = {id(note) for note in above}
            self.notes = [note for note in self.notes if id(note) not in done]

    async def finish(self, value: Any) -> None:
        """Complete the run and enqueue what it left to enqueue, in one transaction."""
        completion = self.ledger.completion(value)
        await self.ledger.settle()
        await self.ledger.commit(*self._posted(*self._taken()), completion)
        self.ledger.settled()

    def _above(self, own: str | None) -> list[StepNote]:
        """Return what is left of places above *own*, but for those of jobs, which go in with their job."""
        kept = (note for note in self.notes if note.kind is not StepKind.ENQUEUE)
        return [note for note in kept if own is not None and own.startswith(f"{note.branch}/")]

    def _taken(
        self, own: str | None = None, living: Container[str] = ()
    ) -> tuple[list[StepNote], list[NewJob]]:
        def is_left(branch: str) -> bool:
            return branch != own and branch in living

        notes, posts = self.notes, self.posts
        self.notes = [note for note in notes if is_left(note.branch)]
        self.posts = [post for post in posts if is_left(post[0])]
        mine = [note for note in notes if not is_left(note.branch)]
        return mine, [job for branch, job in posts if not is_left(branch)]

    def _posted(
        self, notes: Sequence[StepNote], new: Sequence[NewJob]
    ) -> tuple[Statement[Any], Statement[Any]]:
        return steps.save_steps([(self.ledger.fence, note) for note in notes]), jobs.enqueue_jobs(new)

"""The runner: puts its parts together, and starts, drains and stops them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress

from holdfast.errors import HoldfastError
from holdfast.runners.agent.bench import Bench
from holdfast.runners.agent.config import AgentConfig
from holdfast.runners.agent.connection import Connection
from holdfast.runners.agent.registrar import Registrar
from holdfast.runners.agent.roster import Roster
from holdfast.runners.agent.stages import Cause
from holdfast.runners.agent.state import StateFolder
from holdfast.runners.agent.sync import Sync
from holdfast.runtime.events import Events

# What the last words of a stopping runner may take beyond the grace of its programs, in seconds.
LAST_WORDS = 10.0


class Agent:
    """One runner.

    ``start`` registers it and begins to sync; ``stop`` takes nothing new, waits for what runs, and hands back
    what does not end within the grace.
    """

    def __init__(self, config: AgentConfig, events: Events) -> None:
        self.config, self.events = config, events
        self._stack = AsyncExitStack()
        self._hurried = asyncio.Event()
        self.connection: Connection | None = None
        self.roster: Roster | None = None
        self.sync: Sync | None = None

    async def start(self) -> None:
        """Register and begin to take assignments; waits for a server that is away.

        Raises `RunnerBusy`, `FolderUnwritable`, `SettingInvalid` and `ServerRefused`.
        """
        state = self._stack.enter_context(StateFolder(self.config.folder, self.config.name))
        connection = await self._stack.enter_async_context(
            Connection(self.config.server, self.config.version)
        )
        registrar = Registrar(self.config, connection, state, self.events)
        bench = Bench(self.config, connection, self.events)
        registered = await registrar.register_patiently()
        self.connection, self.roster = connection, Roster(bench, state)
        self.sync = Sync(bench, self.roster, registrar)
        self.sync.heed(registered)
        await self.sync.start()
        self.roster.resume()

    async def ended(self) -> None:
        """Wait until this runner has done what it was started for; raises what the server refuses it with."""
        if self.sync is None or self.roster is None:
            return
        done = asyncio.ensure_future(self._done(self.roster))
        failed = asyncio.ensure_future(self.sync.failed.wait())
        try:
            await asyncio.wait({failed, done}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            done.cancel()
            failed.cancel()
        if self.sync.failure is not None:
            raise self.sync.failure

    async def _done(self, roster: Roster) -> None:
        if self.config.once:
            if not roster.begun:
                await roster.wait_busy()
            await roster.wait_empty()
            return
        while True:
            await roster.wait_empty()
            try:
                async with asyncio.timeout(self.config.idle_exit):
                    await roster.wait_busy()
            except TimeoutError:
                return

    async def stop(self, grace: float | None = None) -> bool:
        """Leave in good order; True if everything that ran came to its own end."""
        finished = True
        if self.sync is not None and self.roster is not None:
            finished = await self._wind_up(
                self.sync, self.roster, self.config.grace if grace is None else grace
            )
            self.events.emit("runner.stopped", runner=self.config.name, finished=finished)
        self.sync = self.roster = None
        await self._stack.aclose()
        return finished

    async def _wind_up(self, sync: Sync, roster: Roster, grace: float) -> bool:
        sync.leave()
        finished = await self._emptied(roster, grace)
        if not finished:
            await self._hand_back(sync, roster)
        await sync.stop()
        await roster.stop()
        await self._leave(roster)
        return finished

    def hurry(self) -> None:
        """End the grace of a stop now."""
        self._hurried.set()

    async def _emptied(self, roster: Roster, grace: float) -> bool:
        empty = asyncio.create_task(roster.wait_empty())
        hurried = asyncio.create_task(self._hurried.wait())
        await asyncio.wait({empty, hurried}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        done = empty.done()
        empty.cancel()
        hurried.cancel()
        return done

    async def _hand_back(self, sync: Sync, roster: Roster) -> None:
        grace = roster.bench.intervals.cancel_grace
        roster.interrupt(Cause.RELEASE, grace)
        with suppress(TimeoutError):
            # Without a server to hear it there is no use in waiting longer than for the programs.
            async with asyncio.timeout(grace * roster.is_working + LAST_WORDS * sync.in_contact):
                await roster.wait_empty()

    async def _leave(self, roster: Roster) -> None:
        if self.connection is not None and not roster.held():
            # A runner that cannot say goodbye is lost in a while, and so is nothing.
            with suppress(HoldfastError):
                await self.connection.leave(next(roster.numbers))

    def lives(self) -> bool:
        """False when only a restart helps."""
        return True

    def ready(self) -> bool:
        """True while the server answers and wants this runner."""
        return (
            self.sync is not None
            and self.sync.is_running
            and self.sync.in_contact
            and self.sync.failure is None
        )

    def running_kinds(self) -> Sequence[str]:
        """Return the kind of every assignment that runs now."""
        return [one.assignment.kind for one in tuple(self.roster.executions.values())] if self.roster else []

    @property
    def silence(self) -> float:
        """For how many seconds the server has not answered."""
        return 0.0 if self.sync is None else self.sync.silence

"""Makes machines runners, and lets them go."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from holdfast.client.token_operator import token_hash, token_text
from holdfast.errors import AccessDenied, ProtocolUnsupported, RunnerHolding, TokenInvalid
from holdfast.model.audit import Mandate
from holdfast.model.runner import Registration
from holdfast.model.token import Role
from holdfast.model.worker import WorkerState
from holdfast.rules.liveness import Intervals
from holdfast.runners.hearing import Hearing, RunnerCaller
from holdfast.runners.messages import PROTOCOLS, Register, Registered, RunnerName
from holdfast.runners.taking import tell_taken
from holdfast.runners.telling import told_intervals
from holdfast.runtime.events import Events
from holdfast.store import audit, offers, runners, tokens, workers
from holdfast.store.addressed import AddressedDatabase
from holdfast.store.database import Database
from holdfast.store.runners import NewRunner
from holdfast.store.tokens import Grant


class Registrar:
    """Registers runners, each with a token of its own."""

    def __init__(self, database: Database, intervals: Intervals, hearing: Hearing, events: Events) -> None:
        self._database, self._intervals, self._hearing = database, intervals, hearing
        self._events = events

    async def register(
        self, asked: Register, actor: str, own: int | None = None, *, address: str = ""
    ) -> Registered:
        """Register a runner, or begin a new term of the one with this name; its older token ends.

        *own* is the runner that asks by its own token, which may use no other name; *address* is where it
        asks from.  Raises `ProtocolUnsupported`, `AccessDenied`, `TokenInvalid`.
        """
        if own is not None:
            await self._check_own(asked.name, own)
        spoken = [version for version in asked.protocols if version in PROTOCOLS]
        if not spoken:
            raise ProtocolUnsupported(asked.protocols, PROTOCOLS)
        text = token_text()
        new = _new_runner(asked, max(spoken), self._intervals)
        made = await self._store(new, text, actor, AddressedDatabase(self._database, address))
        self._hearing.forget()
        self._events.emit("runner.registered", worker_id=made.id, runner=asked.name, term=made.term)
        return Registered(
            runner=RunnerName(made.id, asked.name, made.term),
            token=text,
            protocol=max(spoken),
            draining=made.state is WorkerState.DRAINING,
            server_time=datetime.now(UTC),
            intervals=told_intervals(self._intervals),
        )

    async def leave(self, caller: RunnerCaller) -> None:
        """Let a runner go that holds nothing; raises `RunnerHolding`, `RunnerSuperseded`.

        What it was offered and has not accepted goes back: the answer may have crossed its farewell.
        """
        runner = await self._hearing.hear(caller)
        async with self._database.transaction() as connection:
            leaving = runners.leave_runner(caller.worker_id, caller.token_id)
            if not await self._database.run(leaving, connection):
                raise RunnerHolding(caller.worker_id)
            taken = await self._database.run(offers.release_offers(caller.worker_id), connection)
        self._hearing.forget()
        tell_taken(self._events, taken)
        self._events.emit("runner.left", worker_id=runner.id, runner=runner.name)

    async def _check_own(self, name: str, own: int) -> None:
        known = await self._database.run(runners.name_runner(own))
        if known is None:
            # As of a token that was never made: whoever has another one tries it.
            problem = f"the runner of this token, worker {own}, was away for long and is forgotten"
            raise TokenInvalid(problem)
        if known != name:
            raise AccessDenied(Role.RUNNER, f"register {name!r}")

    async def _store(self, new: NewRunner, text: str, actor: str, database: Database) -> Registration:
        async with database.transaction() as connection:
            await self._database.run(workers.know_queues(new.queues), connection)
            made = await self._database.run(runners.register_runner(new), connection)
            grant = Grant(
                name=f"{new.name} term {made.term}",
                sha256=token_hash(text),
                role=Role.RUNNER,
                created_by=actor,
                worker_id=made.id,
            )
            token = await self._database.run(tokens.create_token(grant), connection)
            if token is not None:
                await self._database.run(runners.attach_token(made.id, token.id), connection)
            detail = _change(new, made, None if token is None else token.id)
            note = audit.write_audit(Mandate(actor), "runner.register", f"worker {made.id}", detail)
            await self._database.run(note, connection)
        return made


def _change(new: NewRunner, made: Registration, token_id: int | None) -> dict[str, Any]:
    """Return how the runner is registered now, by a token that has this id, and how it was before."""
    after = {
        "term": made.term,
        "token": token_id,
        "host": new.host,
        "version": new.version,
        "labels": new.labels,
        "queues": new.queues,
        "kinds": new.kinds,
        "slots": new.slots,
        "capacity": new.capacity,
    }
    return {"after": after} if made.before is None else {"before": made.before, "after": after}


def _new_runner(asked: Register, protocol: int, intervals: Intervals) -> NewRunner:
    return NewRunner(
        name=asked.name,
        host=asked.host,
        version=asked.version,
        queues=tuple(asked.queues),
        kinds=tuple(asked.kinds),
        slots=asked.slots,
        ttl=intervals.ttl,
        labels=tuple(sorted(set(asked.labels))),
        capacity=dict(asked.capacity),
        protocol=protocol,
    )

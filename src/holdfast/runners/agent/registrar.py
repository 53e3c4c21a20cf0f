"""Makes this process known to the server as the runner of its name."""

from __future__ import annotations

import asyncio

from holdfast.errors import ServerRefused, ServerUnavailable, SettingInvalid
from holdfast.errors.service import token_remedied
from holdfast.model.placement import COMMAND
from holdfast.runners.agent.config import AgentConfig
from holdfast.runners.agent.connection import Connection
from holdfast.runners.agent.messages import Registered, Registration
from holdfast.runners.agent.state import StateFolder
from holdfast.runtime.events import Events
from holdfast.runtime.outage import Outage

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0


class Registrar:
    """Registers a runner, with its own token of an earlier start or with the one it was given.

    Every registration is a new term: who else speaks for this runner is refused from then on.
    """

    def __init__(
        self, config: AgentConfig, connection: Connection, state: StateFolder, events: Events
    ) -> None:
        self._config, self._connection, self._state, self._events = config, connection, state, events

    async def register(self) -> Registered:
        """Register once.

        Raises `ServerUnavailable`, `ServerRefused`, `FolderUnwritable`, without a token `SettingInvalid`.
        """
        tokens = [token for token in (self._state.token(), self._config.token) if token is not None]
        if not tokens:
            msg = "token is not set: a runner needs one made by `holdfast tokens create --role registrar`"
            raise SettingInvalid(msg, setting="token")
        # From the answer on the token of the last registration is worth nothing.
        self._state.make_room()
        for token in tokens:
            try:
                registered = await self._connection.register(self._registration(), token)
            except ServerRefused as error:
                if not error.is_about_token:
                    raise
                if token is tokens[-1]:
                    problem = token_remedied(error.problem, "registrar")
                    raise ServerRefused(error.status, problem, error.facts) from None
            else:
                break
        self._state.keep_token(registered.token)
        self._events.emit(
            "runner.registered",
            runner=registered.runner.name,
            worker_id=registered.runner.id,
            term=registered.runner.term,
        )
        return registered

    async def register_patiently(self) -> Registered:
        """Register, however long the server is away."""
        pause, outage = FIRST_PAUSE, Outage()
        while True:
            try:
                return await self.register()
            except ServerUnavailable as error:
                failures = outage.failed()
                if failures is not None:
                    self._events.emit("server.unreachable", error=error, failures=failures, retry_in=pause)
                await asyncio.sleep(pause)
                pause = min(LONGEST_PAUSE, pause * 2)

    def _registration(self) -> Registration:
        config = self._config
        return Registration(
            name=config.name,
            host=config.host,
            version=config.version,
            labels=config.labels,
            kinds=(COMMAND, *config.kinds),
            queues=config.queues,
            slots=config.slots,
            capacity=config.capacity,
        )

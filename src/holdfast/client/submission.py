"""Enqueues jobs that come as JSON: one request, however often it is repeated, makes them once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

import msgspec

from holdfast.app.options import checked_text
from holdfast.client.intake import Intake, JobText
from holdfast.errors import RequestKeyReused
from holdfast.model.audit import Mandate
from holdfast.model.job import JobHandle, NewJob
from holdfast.store import audit, bulk, request_keys
from holdfast.store.database import Connection, Database
from holdfast.store.request_keys import RequestKey
from holdfast.store.statement import Statement

LONGEST_KEY = 200


class Submissions:
    """Takes jobs in as *intake* reads them, and notes in the audit log that *actor* enqueued them."""

    def __init__(self, database: Database, intake: Intake, actor: str) -> None:
        self._database, self._intake, self._actor = database, intake, actor

    async def submit(
        self, texts: Sequence[JobText], *, key: str | None = None, token_id: int = 0
    ) -> list[JobHandle]:
        """Enqueue all of *texts* or none; a second request of a token with the same *key* is the first one.

        Raises `InputInvalid`, `UnknownKind`, `DuplicateJob`, and `RequestKeyReused` where the key came with
        other jobs before.
        """
        rows = [self._intake.job(text) for text in texts]
        async with self._database.transaction() as connection:
            if key is None:
                return await self._put(rows, connection)
            checked_text("idempotency key", key, most=LONGEST_KEY)
            body = msgspec.json.encode(texts, order="deterministic")
            request = RequestKey(token_id, key, sha256(body).digest())
            if not await self._database.run(request_keys.reserve_request(request), connection):
                return await self._repeated(request, connection)
            handles = await self._put(rows, connection)
            answer = msgspec.json.encode(handles).decode()
            await self._database.run(request_keys.answer_request(request, answer), connection)
            return handles

    async def _put(self, rows: list[NewJob], connection: Connection) -> list[JobHandle]:
        if not rows:
            return []
        handles = await bulk.put_jobs(connection, self._database.schema, rows)
        await self._database.run(self._note(rows, handles), connection)
        return handles

    def _note(self, rows: Sequence[NewJob], handles: Sequence[JobHandle]) -> Statement[int]:
        ids = [handle.id for handle in handles]
        subject = f"job {ids[0]}" if len(ids) == 1 else f"jobs {min(ids)} to {max(ids)}"
        became = Counter(handle.status for handle in handles)
        after = {
            "kinds": dict(Counter(row.kind for row in rows)),
            "queues": dict(Counter(row.queue for row in rows)),
        }
        return audit.write_audit(
            Mandate(self._actor), "job.enqueue", subject, {"after": after | {"jobs": became}}
        )

    async def _repeated(self, request: RequestKey, connection: Connection) -> list[JobHandle]:
        former = await self._database.run(request_keys.answered_request(request), connection)
        if former is None or former.answer is None or former.sha256 != request.sha256:
            raise RequestKeyReused(request.key)
        return msgspec.json.decode(former.answer, type=list[JobHandle])

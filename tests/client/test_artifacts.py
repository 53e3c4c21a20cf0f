"""What a program gets of the files that runners left; async and sync alike."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase

KEEP = """
insert into holdfast.artifacts (job_id, attempt, name, size, sha256, data, created_at)
values ($1, $2, $3, octet_length($4::bytea), encode(sha256($4::bytea), 'hex'), $4, holdfast.now())
"""


async def test_artifacts_are_listed_and_read(
    call: Any, client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """Each with its attempt, size and sum, later attempts last; the bytes come as they were left."""
    job_id = (await client.enqueue(holdfast.command("make"))).id
    kept = [(2, "out/b.bin", b"\x00b\xff"), (1, "out/b.bin", b"old"), (1, "a.txt", b"")]
    for attempt, name, data in kept:
        await db.fetch(KEEP, job_id, attempt, name, data)
    found = await call("artifacts", job_id)
    assert [(one.attempt, one.name, one.size, one.sha256) for one in found] == [
        (attempt, name, len(data), sha256(data).hexdigest()) for attempt, name, data in reversed(kept)
    ]
    assert all(isinstance(one, holdfast.ArtifactRecord) for one in found)
    read = [await call("artifact", job_id, one.attempt, one.name) for one in found]
    assert read == [data for *_, data in reversed(kept)]


async def test_what_nobody_left_is_not_found(call: Any, client: holdfast.Client) -> None:
    """A job without files has an empty list; a job that never was and a name nobody gave are errors."""
    job_id = (await client.enqueue(holdfast.command("make"))).id
    assert await call("artifacts", job_id) == []
    with pytest.raises(holdfast.JobNotFound):
        await call("artifacts", job_id + 1)
    with pytest.raises(holdfast.ArtifactNotFound, match="artifact 'b'"):
        await call("artifact", job_id, 1, "b")

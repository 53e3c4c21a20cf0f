"""A database that refuses the end of a job for reasons of its own."""

from typing import Any

import pytest

import holdfast
from holdfast.testing import Probe, ThrowawayDatabase

# What a check or a trigger of the database's owner does.
REFUSE = """
do $do$ begin
    create function holdfast.refuse() returns trigger language plpgsql as $$
    begin
        raise exception 'not today' using errcode = 'check_violation', constraint = 'not_today';
    end $$;
    create trigger refuse before insert on holdfast.finished_jobs
    for each row execute function holdfast.refuse();
end $do$
"""


async def test_an_end_that_is_refused_again_and_again_is_tried_with_growing_pauses(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase, probe: Probe
) -> None:
    """Not even "could not be stored" can be stored: the worker neither spins nor gives the job up."""
    app = holdfast.App()

    @app.job
    async def greet() -> str:
        return "hello"

    await db.fetch(REFUSE)
    await work(app)
    handle = await client.enqueue(greet.job())
    await probe.wait_for("report.delayed", lambda fields: fields["retry_in"] >= 0.2)
    await db.fetch("drop function holdfast.refuse cascade")
    with pytest.raises(holdfast.JobFailed, match=r"the outcome could not be stored: .*not today"):
        await client.wait(handle.id, timeout=20)

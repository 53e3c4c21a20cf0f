"""A connection of a thread's own: whatever fails on it is told in our words, and the next one is new."""

import psycopg
import pytest

from holdfast.errors import DatabaseRefused, DatabaseUnavailable
from holdfast.store import dedicated, leader
from holdfast.store.dedicated import DedicatedConnection
from holdfast.testing import ThrowawayDatabase


@pytest.mark.parametrize(
    ("met", "told"),
    [
        (psycopg.InternalError("unexpected result"), DatabaseUnavailable),
        (psycopg.DatabaseError("lost synchronization"), DatabaseUnavailable),
        (DatabaseUnavailable("away"), DatabaseUnavailable),
        (DatabaseRefused("no"), DatabaseRefused),
    ],
    ids=lambda one: getattr(one, "__name__", type(one).__name__),
)
async def test_whatever_fails_is_told_and_the_next_connection_is_new(
    db: ThrowawayDatabase, monkeypatch: pytest.MonkeyPatch, met: Exception, told: type[Exception]
) -> None:
    """A thread that keeps a lease would end with an error that it does not know, and the lease with it."""
    connection = DedicatedConnection(db.config, "test", patience=2.0)
    assert connection.run(leader.leader_lapse()) is None
    first = connection._connection

    def failing(*_: object) -> object:
        raise met

    with monkeypatch.context() as patch:
        patch.setattr(dedicated, "run_on_sync", failing)
        with pytest.raises(told):
            connection.run(leader.leader_lapse())
    assert first is not None
    assert first.closed
    assert connection.run(leader.leader_lapse()) is None
    assert connection._connection is not first
    connection.close()

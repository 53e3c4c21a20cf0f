"""A throw-away database whose schema the test names."""

import psycopg

from examples.forge.scene.server import create_database
from holdfast.testing import SyncThrowawayDatabase


def test_an_applications_own_sql_finds_the_schema_that_it_names(dsn: str) -> None:
    """In a database of the test's own, plain SQL against schema holdfast works as in production."""
    url = create_database(dsn)
    with SyncThrowawayDatabase(url, schema="holdfast") as db, psycopg.connect(url) as connection:
        [job_id] = connection.execute("select holdfast.enqueue('ping')").fetchone() or [None]
        connection.commit()
        assert db.schema == "holdfast"
        assert db.value("select id from holdfast.jobs") == job_id
    with psycopg.connect(url) as connection:
        assert connection.execute("select to_regnamespace('holdfast')").fetchone() == (None,)

"""The pytest plugin gives users a server and a throw-away database."""

import pytest

pytest_plugins = ["pytester"]

SUITE = """
import holdfast
from holdfast.testing import drain

app = holdfast.App()

@app.job
async def add(a: int, b: int) -> int:
    return a + b

async def test_async(holdfast_db):
    async with holdfast.Client(holdfast_db.dsn, schema=holdfast_db.schema) as client:
        handle = await client.enqueue(add.job(2, 3))
        await drain(app, holdfast_db)
        assert await client.wait(handle.id, timeout=5) == 5

def test_sync(holdfast_sync_db):
    holdfast_sync_db.fetch("select holdfast.enqueue('add', jsonb_build_object('a', 1, 'b', 1))")
    assert [one.result for one in holdfast_sync_db.drain(app).attempts] == [2]
"""


def test_a_users_suite_runs_on_a_named_server(pytester: pytest.Pytester, dsn: str) -> None:
    """Both fixtures work in a suite that does nothing but install holdfast."""
    pytester.makepyfile(SUITE)
    result = pytester.runpytest_subprocess(f"--holdfast-database-url={dsn}", "-o", "asyncio_mode=auto")
    result.assert_outcomes(passed=2)


def test_a_users_suite_starts_a_server_of_its_own(pytester: pytest.Pytester) -> None:
    """Without a named server the embedded one runs for the session, also in asyncio's strict mode."""
    pytester.makepyfile(SUITE.replace("async def test_async", "@pytest.mark.asyncio\nasync def test_async"))
    pytester.makeconftest("")
    (path,) = pytester.path.glob("test_*.py")
    path.write_text(f"import pytest\n{path.read_text()}")
    result = pytester.runpytest_subprocess("-o", "asyncio_mode=strict", "-W", "default")
    result.assert_outcomes(passed=2)


def test_the_server_can_be_named_in_the_settings_of_pytest(pytester: pytest.Pytester) -> None:
    """The ini setting chooses the server as the option does; a server that is not there is a clear error."""
    pytester.makepyfile(SUITE)
    pytester.makeini("[pytest]\nasyncio_mode=auto\nholdfast_database_url=postgresql://127.0.0.1:1/none\n")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*DatabaseUnavailable: PostgreSQL cannot be reached*"])

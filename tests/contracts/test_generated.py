"""What is generated and committed says what its source says."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "sync_client.py"))


def test_the_sync_client_is_up_to_date() -> None:
    """Whoever changes the async client and forgets `make generate` is told so."""
    expected = SCRIPT["translated"](SCRIPT["SOURCE"].read_text("utf-8"))
    assert SCRIPT["RESULT"].read_text("utf-8") == expected, "run `make generate`"


def test_a_word_that_no_rule_translates_stops_the_generator() -> None:
    """An async construct without a sync twin is named instead of being written down."""
    with pytest.raises(SystemExit, match=r"'asyncio' is left in line 1"):
        SCRIPT["translated"]('"""Uses asyncio."""\n')


def test_code_and_prose_are_translated_together() -> None:
    """Keywords fall away, names change, and a docstring speaks of the sync client."""
    source = '''class Client:
    """Use it as ``async with Client(dsn)``."""

    async def __aenter__(self) -> None:
        async with self.other as it:
            await asyncio.sleep(it)
'''
    expected = '''class SyncClient:
    """Use it as ``with SyncClient(dsn)``."""

    def __enter__(self) -> None:
        with self.other as it:
            time.sleep(it)
'''
    assert SCRIPT["translated"](source) == SCRIPT["HEADER"] + expected

"""docs/reference/bad-input.md: each row is done, says what the row says, and loses nothing."""

import re
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase, drain
from tests.contracts.bad_input import CASES, FAILED, NOTHING_MADE, Case, Scene, app, greet

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "bad-input.md"
ROW = re.compile(
    r"^\| (?P<input>.+?) \| (?P<error>\w+) \| (?P<message>.+) \| (?P<holds>.+?) \|$", re.MULTILINE
)


def rows() -> dict[str, tuple[str, str, str]]:
    """The rows of the page by their input: error, message, what holds."""
    found = ROW.finditer(PAGE.read_text())
    return {
        row["input"]: (row["error"], row["message"], row["holds"]) for row in found if row["error"] != "error"
    }


async def said(one: Case, scene: Scene) -> tuple[str, str]:
    """The error of a case and its words, the throw-away schema called by its usual name."""
    try:
        answer = await one.done(scene)
    except (holdfast.HoldfastError, asyncpg.PostgresError) as error:
        return type(error).__name__, str(error).replace(scene.db.schema, "holdfast")
    if isinstance(answer, str):
        return "reason", answer
    report = await drain(app, scene.db)
    return "reason", report.attempts[0].reason or ""


@pytest.mark.parametrize("one", CASES, ids=[one.input for one in CASES])
async def test_a_row_says_what_happens(one: Case, client: holdfast.Client, db: ThrowawayDatabase) -> None:
    """The message on the page is the message that comes, and what holds after it does hold."""
    scene = Scene(client, db)
    error, message = await said(one, scene)
    assert rows().get(one.input) == (error, message.replace("|", "\\|"), one.holds)
    ended: Any = await db.fetch("select state, reason from holdfast.job_overview")
    if one.holds == NOTHING_MADE:
        assert ended == []
    elif one.holds == FAILED:
        assert ended == [("failed", message)]
    # Whatever it was, the next job is enqueued and runs.
    handle = await client.enqueue(greet.job(name="ok"))
    report = await drain(app, db)
    assert report.of(greet)[-1].job_id == handle.id
    assert report.of(greet)[-1].result == "ok"


def test_the_page_has_no_row_that_nobody_runs() -> None:
    """A row without a case would be a promise without a test."""
    assert rows().keys() == {one.input for one in CASES}

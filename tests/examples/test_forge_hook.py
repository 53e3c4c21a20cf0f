"""The hook hands a push in as one transaction, and never refuses one."""

import json
import socket
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from examples.forge import git, hook, pushes, repositories, spool
from examples.forge.pushes import Push, RefUpdate
from examples.forge.repositories import DEFAULT_BRANCH
from tests.examples.bench import TOPIC, Bench, push

MAIN, TAG = f"{DEFAULT_BRANCH}:{DEFAULT_BRANCH}", f"{DEFAULT_BRANCH}:refs/tags/v1"
WAITING = "select count(*) from holdfast.job_overview where kind = 'push:process' and state = 'available'"


def a_push(repository_id: int) -> Push:
    """A push of one new branch, as the hook hands it in."""
    updates = (RefUpdate(git.NOTHING, "a" * 40, TOPIC),)
    return Push(
        id=str(uuid4()),
        repository_id=repository_id,
        pusher="ada",
        pushed_at=datetime.now(UTC),
        updates=updates,
    )


def test_a_push_leaves_an_event_and_a_job_for_each_ref(bench: Bench) -> None:
    """Two refs in one push are two events with one push id, and a job for each."""
    repository = bench.repository()
    clone = bench.client(repository)
    assert push(clone, MAIN, TAG).returncode == 0
    tip = repositories.head(repository.path)
    events = bench.rows(
        "select ref, before_sha, after_sha, pusher, spooled from forge.push_events order by ref"
    )
    assert events == [(ref, git.NOTHING, tip, "ada", False) for ref in (DEFAULT_BRANCH, "refs/tags/v1")]
    assert bench.value("select count(distinct push_id) from forge.push_events") == 1
    jobs = "select (args->>'event_id')::bigint from holdfast.jobs where kind = 'push:process' order by 1"
    assert bench.rows(jobs) == bench.rows("select id from forge.push_events order by id")


def test_a_rollback_leaves_neither_event_nor_job(bench: Bench) -> None:
    """Event and job belong to the caller's transaction, and to the same one."""
    repository = bench.repository()
    with bench.forge.connect() as connection:
        assert pushes.record(connection, a_push(repository.id)) == 1
        connection.rollback()
    assert bench.value("select count(*) from forge.push_events") == bench.value(WAITING) == 0


def test_no_event_is_written_when_its_job_cannot_be(bench: Bench) -> None:
    """Without the function that enqueues, the push stands, nothing is half written, and the spool has it."""
    repository = bench.repository()
    bench.rows("alter schema holdfast rename to away")
    ended = push(bench.client(repository), MAIN)
    bench.rows("alter schema away rename to holdfast")
    assert ended.returncode == 0
    assert bench.value("select count(*) from forge.push_events") == 0
    assert len(bench.spooled()) == 1


def test_a_push_is_accepted_while_the_database_refuses_and_is_swept_later(bench: Bench) -> None:
    """The pusher is told, the event waits on disk, and the sweep makes up for it."""
    repository = bench.repository()
    clone = bench.client(repository)
    with bench.refusing():
        ended = push(clone, MAIN, TAG)
    assert ended.returncode == 0
    assert "will be processed later" in ended.stderr
    assert repositories.head(repository.path) is not None
    assert bench.value("select count(*) from forge.push_events") == 0
    bench.enqueue("push:sweep")
    report = bench.drain()
    assert [one.result for one in report.of("push:sweep")] == [2]
    assert bench.spooled() == []
    assert bench.rows("select spooled, processed_at is not null from forge.push_events") == [(True, True)] * 2


def test_a_push_is_accepted_when_the_settings_are_gone(bench: Bench) -> None:
    """A forge that is half installed still takes pushes, and loses none."""
    repository = bench.repository()
    bench.settings.file.unlink()
    assert push(bench.client(repository), MAIN).returncode == 0
    assert len(bench.spooled()) == 1


def test_a_database_that_never_answers_costs_the_budget_and_no_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The hook gives up after its budget, though the other side keeps the connection open."""
    monkeypatch.setattr(hook, "BUDGET", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://nobody@127.0.0.1:{silent.getsockname()[1]}/none"
        settings = replace(bench.settings, database_url=url, root=tmp_path / "elsewhere")
        began = time.monotonic()
        with pytest.raises((hook.OutOfTime, psycopg.Error)):
            hook.hand_in(settings.save(), a_push(1))
    assert time.monotonic() - began < 5


def test_a_push_is_accepted_when_nothing_can_be_kept_and_the_pusher_is_told(bench: Bench) -> None:
    """Database away and disk full: all that is left is to say so."""
    repository = bench.repository()
    spool.folder_of(repository.path).write_text("in the way")
    clone = bench.client(repository)
    with bench.refusing():
        ended = push(clone, MAIN)
    assert ended.returncode == 0
    assert "tell an operator" in ended.stderr


def test_a_push_that_is_handed_in_twice_is_one_event(bench: Bench) -> None:
    """A commit whose answer was lost is spooled as well: the sweep finds its event there."""
    repository = bench.repository()
    doubted = a_push(repository.id)
    with bench.forge.connect() as connection:
        pushes.record(connection, doubted)
    spool.keep(repository.path, doubted)
    bench.enqueue("push:sweep")
    assert [one.result for one in bench.drain(queues=["chores"]).attempts] == [0]
    assert bench.value("select count(*) from forge.push_events") == bench.value(WAITING) == 1
    assert bench.spooled() == []


@pytest.mark.parametrize("rubbish", ["", "{", "[]", '{"id": 1}'])
def test_what_is_no_push_is_put_aside(bench: Bench, rubbish: str) -> None:
    """A file that nobody can read does not keep the sweep from the next one, and is not deleted."""
    repository = bench.repository()
    kept = spool.keep(repository.path, a_push(repository.id))
    broken = kept.with_name("broken.json")
    broken.write_text(rubbish)
    bench.enqueue("push:sweep")
    assert [one.result for one in bench.drain(queues=["chores"]).attempts] == [1]
    assert broken.with_suffix(".rejected").read_text() == rubbish


def test_a_push_to_a_repository_that_is_gone_is_put_aside(bench: Bench) -> None:
    """Its event can never be stored, so it must not be in the way for ever."""
    repository = bench.repository()
    kept = spool.keep(repository.path, a_push(repository.id + 1))
    bench.enqueue("push:sweep")
    bench.drain()
    assert json.loads(kept.with_suffix(".rejected").read_text())["pusher"] == "ada"


def test_the_hook_starts_from_paths_with_spaces(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Interpreter and forge may lie in folders with spaces and quotes in their names."""
    python = tmp_path / "it's a folder" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    repository = bench.repository()
    assert push(bench.client(repository), MAIN).returncode == 0
    assert bench.value(WAITING) == 1
    assert " " in str(bench.settings.file)


@pytest.mark.parametrize(
    ("name", "recorded"), [(b"caf\xe9", "caf\\xe9"), ("two\u2028lines".encode(), "two\u2028lines")]
)
def test_any_name_that_git_allows_is_recorded(bench: Bench, name: bytes, recorded: str) -> None:
    """Bytes that are no Unicode are written out, and what ends a line for Unicode ends none for git."""
    repository = bench.repository()
    clone = bench.client(repository)
    ref = "refs/heads/" + name.decode("utf-8", "surrogateescape")
    assert push(clone, f"{DEFAULT_BRANCH}:{ref}").returncode == 0
    assert bench.rows("select ref from forge.push_events") == [(f"refs/heads/{recorded}",)]
    assert [one.outcome for one in bench.drain().of("push:process")] == ["completed"]

"""The demo, small: real worker processes, one of them killed; and an interrupt that leaves nothing behind."""

import io
import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from rich.console import Console

from examples.forge import demo
from examples.forge.scene import fleet
from examples.forge.scene.github import LoopbackGitHub
from examples.forge.scene.story import Scale
from examples.forge.yard.act import Plan

AT_WORK = """
    with enqueued as (select holdfast.enqueue('it') as id), worker as (
        insert into holdfast.workers (name, host, pid, version, queues, kinds, slots, ttl, started_at,
                                      renewed_at, expires_at)
        values ('w', 'h', %s, '0', '{default}', '{it}', 1, '1 h', now(), now(), now() + interval '1 h')
        returning id
    )
    select enqueued.id, worker.id from enqueued, worker
"""
CLAIMED = """
    update holdfast.live_jobs set worker_id = %s, attempt = 1, state = 'running', claimed_at = now()
    where job_id = %s
"""
SMALL = Scale(
    pushes=15, clients=2, repositories=2, workers=2, refs_at_once=20, rankings=1, ttl=1.5, patience=90.0
)


def test_a_small_demo_survives_the_kill_and_its_check_passes(dsn: str, tmp_path: Path) -> None:
    """Pushes, an import, an outage and a kill: everything is processed exactly once.

    Then twenty commands, a cancel and another kill: each ends once, as it had to, and its log is whole.
    """
    told = io.StringIO()
    with LoopbackGitHub(tmp_path / "github") as github:
        stage = demo.opened(tmp_path, dsn, github.url)
        passed = demo.play(stage, SMALL, Console(file=told, width=120))
        played_on = passed and demo.play_on(stage, Plan(), Console(file=told, width=120))
    story = told.getvalue()
    assert passed, story
    assert played_on, story
    assert "is killed (SIGKILL) with" in story
    assert "through the spool" in story
    assert "lost" in story
    assert "7 imported" in story
    assert "patrol │ called back" in story
    assert "commands, which die with it" in story


def test_an_interrupted_demo_leaves_nothing_behind() -> None:
    """Ctrl-C in the middle ends workers, clients and PostgreSQL, and removes every file."""
    with tempfile.TemporaryDirectory(prefix="hf") as folder:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "examples.forge.demo"],
            env=os.environ | {"TMPDIR": folder},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        with process.stdout:
            assert any("clients with clones" in line for line in process.stdout)
            processes = psutil.Process(process.pid).children(recursive=True)
            [postmaster] = Path(folder).glob("*/pg/postmaster.pid")
            processes.append(psutil.Process(int(postmaster.read_text().split()[0])))
            process.send_signal(signal.SIGINT)
            rest = process.stdout.read()
        assert process.wait(timeout=60) == demo.INTERRUPTED
        assert "interrupted" in rest
        assert list(Path(folder).iterdir()) == []
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert len(processes) > 3
    assert alive == []


def test_what_a_frozen_worker_sent_last_is_waited_for(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a job counts as held whose end is under way; but who waits for a lock may wait for it."""
    with (
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(dsn, application_name="holdfast worker", autocommit=True) as session,
        psycopg.connect(dsn, autocommit=True) as connection,
    ):
        pid = session.info.backend_pid
        sent = pool.submit(session.execute, "select pg_sleep(60)")
        under_way(connection, pid, "PgSleep")
        monkeypatch.setattr(fleet, "PATIENCE", 0.05)
        assert not fleet.are_done(connection)
        monkeypatch.setattr(fleet, "PATIENCE", 10.0)
        connection.execute("select pg_cancel_backend(%s)", [pid])
        assert fleet.are_done(connection)
        assert isinstance(sent.exception(), psycopg.errors.QueryCanceled)
        connection.execute("select pg_advisory_lock(7)")
        pool.submit(session.execute, "select pg_advisory_lock(7)")
        under_way(connection, pid, "advisory")
        assert fleet.are_done(connection)


def test_a_worker_is_killed_only_when_what_it_sent_last_is_done(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what it held when it died is not what we saw; and who is not killed goes on."""
    settings = demo.opened(tmp_path, dsn, "http://127.0.0.1:9").settings
    dsn = settings.database_url
    workers = fleet.Fleet(settings, tmp_path, workers=0, ttl=1.5)
    with (
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(dsn, application_name="holdfast worker", autocommit=True) as session,
        psycopg.connect(dsn, autocommit=True) as connection,
        workers,
    ):
        process = workers.processes["worker-1"] = subprocess.Popen(["sleep", "600"])
        [(job, worker)] = connection.execute(AT_WORK, [process.pid]).fetchall()
        assert connection.execute(CLAIMED, [worker, job]).rowcount == 1
        sent = pool.submit(session.execute, "select pg_sleep(60)")
        under_way(connection, session.info.backend_pid, "PgSleep")
        monkeypatch.setattr(fleet, "PATIENCE", 0.05)
        assert workers.kill_one_at_work(connection) is None
        assert psutil.Process(process.pid).status() != psutil.STATUS_STOPPED
        monkeypatch.setattr(fleet, "PATIENCE", 10.0)
        connection.execute("select pg_cancel_backend(%s)", [session.info.backend_pid])
        assert isinstance(sent.exception(), psycopg.errors.QueryCanceled)
        death = workers.kill_one_at_work(connection)
        assert death is not None
        assert [held.job_id for held in death.held] == [job]
        assert process.returncode == -signal.SIGKILL


def under_way(connection: psycopg.Connection[Any], pid: int, event: str) -> None:
    """Wait until a session waits for this event."""
    waits = "select from pg_stat_activity where pid = %s and wait_event = %s"
    while not connection.execute(waits, [pid, event]).fetchall():
        pass

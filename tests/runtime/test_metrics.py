"""Events become numbers, with labels that cannot run away."""

import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.errors import DatabaseUnavailable
from holdfast.model.outcome import Complete, Fail, Outcome, PutBack, Stop, Suspend
from holdfast.model.worker import QueueRecord
from holdfast.runtime.events import Events
from holdfast.runtime.exposition import MetricsServer
from holdfast.runtime.metrics import Metrics


@dataclass(frozen=True)
class Reported:
    """One outcome as a reporter tells it."""

    fence: int
    decision: Any
    seconds: float = 0.02
    kind: str = "send_mail"


@dataclass(frozen=True)
class Rescued:
    """One job as a rescuer tells it."""

    kind: str
    fate: str
    job_id: int = 1


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """The value of one sample."""
    return metrics.registry.get_sample_value(name, labels)


def processed(metrics: Metrics, outcome: str, kind: str = "send_mail") -> float | None:
    """How many attempts were counted with an outcome."""
    return value(metrics, "holdfast_jobs_processed_total", kind=kind, outcome=outcome)


@pytest.mark.parametrize(
    ("decision", "label"),
    [
        (Complete("1"), "ok"),
        (Fail("trace", "attempts exhausted (1 of 1): X"), "failed"),
        (Fail("trace", "poison: bad"), "poison"),
        (Stop("asked"), "cancelled"),
        (PutBack(Outcome.RETRIED, 1.0, True, "X"), "retry"),
        (PutBack(Outcome.SNOOZED, 1.0, False, "X"), "snoozed"),
        (PutBack(Outcome.RELEASED, 0.0, False, "X"), "released"),
        (Suspend("signal"), "suspended"),
        (Suspend("NonDeterministicRun: X", paused=True), "held"),
    ],
)
def test_every_decision_is_counted_under_its_word(decision: Any, label: str) -> None:
    """One recorded outcome is one count, and one observation of its duration."""
    metrics = Metrics(["send_mail"])
    Events(metrics).emit("attempts.reported", batch=[Reported(1, decision)], accepted=1, stale=[])
    assert processed(metrics, label) == 1
    assert value(metrics, "holdfast_job_duration_seconds_count", kind="send_mail") == 1


def test_a_stale_outcome_is_not_counted_as_processed() -> None:
    """What the database refused has not happened."""
    metrics = Metrics(["send_mail"])
    batch = [Reported(1, Complete()), Reported(2, Complete())]
    Events(metrics).emit("attempts.reported", batch=batch, accepted=1, stale=[2])
    Events(metrics).emit("attempts.stale", fences=[2])
    assert processed(metrics, "ok") == 1
    assert value(metrics, "holdfast_attempts_stale_total") == 1


def test_a_job_given_back_from_the_buffer_is_not_counted_as_processed() -> None:
    """Its handler never began, and it has no kind here."""
    metrics = Metrics(["send_mail"])
    put_back = PutBack(Outcome.RELEASED, 0.0, False, "X")
    Events(metrics).emit("attempts.reported", batch=[Reported(1, put_back, kind="")], accepted=1, stale=[])
    assert processed(metrics, "released") == 0


def test_an_unknown_kind_never_becomes_a_label() -> None:
    """Whoever enqueues nonsense cannot fill Prometheus with it."""
    metrics = Metrics(["send_mail"])
    Events(metrics).emit("jobs.rescued", rescued=[Rescued("send_mail", "lost"), Rescued("x" * 99, "failed")])
    assert processed(metrics, "lost") == 1
    assert processed(metrics, "failed", kind="other") == 1
    kinds = {
        sample.labels["kind"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if "kind" in sample.labels
    }
    assert kinds == {"send_mail", "other"}


def test_errors_of_the_database_are_counted_where_they_happen() -> None:
    """A failing turn counts as a database error only when the database failed."""
    metrics = Metrics([])
    events = Events(metrics)
    events.emit("service.failed", service="claimer", error=DatabaseUnavailable("away"))
    events.emit("service.failed", service="claimer", error=ValueError("bug"))
    events.emit("lease.delayed", worker_id=1, error=OSError("away"))
    assert value(metrics, "holdfast_service_failures_total", service="claimer") == 2
    assert value(metrics, "holdfast_database_errors_total", during="claimer") == 1
    assert value(metrics, "holdfast_database_errors_total", during="lease") == 1


def test_what_becomes_of_assignments_is_counted() -> None:
    """Offers, ends by outcome, and what was taken back by its fate."""
    metrics = Metrics([])
    events = Events(metrics)
    events.emit("assignments.offered", count=3)
    events.emit("assignments.ended", count=2, outcomes=Counter({"completed": 2}))
    events.emit("assignments.taken", count=2, fates={7: "retried", 8: "retried"})
    assert value(metrics, "holdfast_assignments_offered_total") == 3
    assert value(metrics, "holdfast_assignments_ended_total", outcome="completed") == 2
    assert value(metrics, "holdfast_assignments_taken_total", fate="retried") == 2


def test_only_a_second_connection_for_notifications_is_a_reconnect() -> None:
    """The first one is the start."""
    metrics = Metrics([])
    events = Events(metrics)
    events.emit("listen.connected")
    assert value(metrics, "holdfast_listen_reconnects_total") == 0
    events.emit("listen.connected")
    assert value(metrics, "holdfast_listen_reconnects_total") == 1


def test_what_runs_and_what_waits_is_looked_up_at_the_scrape() -> None:
    """Gauges cost nothing while nobody asks."""
    metrics = Metrics(["send_mail"])
    counted = datetime.now(UTC)
    record = QueueRecord(
        "mail", False, None, 1, False, None, 7, 2, 3, 0, counted - timedelta(seconds=9), counted
    )
    metrics.running = lambda: ["send_mail", "send_mail", "nobody knows"]
    metrics.queues = lambda: [record]
    assert value(metrics, "holdfast_jobs_in_flight", kind="send_mail") == 2
    assert value(metrics, "holdfast_jobs_in_flight", kind="other") == 1
    assert value(metrics, "holdfast_queue_depth", queue="mail", state="available") == 7
    assert value(metrics, "holdfast_queue_oldest_seconds", queue="mail") == 9


def test_a_job_costs_less_than_three_microseconds_of_counting() -> None:
    """The hot path stays hot: two events a job and a batch of two hundred, as in a busy worker."""

    class Running:
        is_settled, claimed, seconds = False, None, 0.0

    metrics = Metrics([f"kind{n}" for n in range(20)])
    kinds = [f"kind{n % 20}" for n in range(200)]
    batch = [Reported(n, Complete(), kind=kind) for n, kind in enumerate(kinds)]
    fields: dict[str, Any] = {"running": Running, "decision": batch[0].decision}

    def once() -> float:
        began = time.process_time()
        for _ in range(50):
            for _ in range(200):
                metrics("attempt.started", fields)
                metrics("attempt.ended", fields)
            metrics("attempts.reported", {"batch": batch, "accepted": 200, "stale": []})
        return (time.process_time() - began) / 10_000

    best = min(once() for _ in range(5))
    # The budget is 3 µs; other tests share these cores, and only the best of five rounds counts.
    assert best < 3e-6, f"{best * 1e6:.2f} µs a job"


def has_ipv6() -> bool:
    """Whether this machine has the address ::1."""
    with socket.socket(socket.AF_INET6) as tried, suppress(OSError):
        tried.bind(("::1", 0))
        return True
    return False


@pytest.fixture(params=["127.0.0.1", "::1"])
def address(request: pytest.FixtureRequest) -> Any:
    """A server with one counter that lives and is not ready, on an address of either kind."""
    if ":" in request.param and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    metrics = Metrics(["send_mail"])
    Events(metrics).emit("attempts.reported", batch=[Reported(1, Complete())], accepted=1, stale=[])
    server = MetricsServer(metrics.registry, lives=lambda: True, ready=lambda: False)
    yield server.start(request.param, 0).removesuffix("/metrics")
    server.stop()


def link_local() -> str | None:
    """An address of this machine that means something only with its interface."""
    listed = Path("/proc/net/if_inet6")
    lines = [line.split() for line in listed.read_text().splitlines()] if listed.exists() else []
    found = (
        f"{IPv6Address(bytes.fromhex(line[0]))}%{line[5]}" for line in lines if line[0].startswith("fe80")
    )
    return next(found, None)


def test_metrics_are_served_on_an_address_with_its_interface() -> None:
    """Such as fe80::1%eth0, where the % is escaped in a URL."""
    if (host := link_local()) is None:
        pytest.skip("this machine has no such address")
    server = MetricsServer(Metrics([]).registry, lives=lambda: True, ready=lambda: False)
    address, _, port = server.start(host, 0).removesuffix("/metrics").rpartition(":")
    assert address == f"http://[{host.replace('%', '%25')}]"
    with socket.create_connection((host, int(port)), timeout=5) as asking:
        asking.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        assert b" 200 " in asking.recv(100)
    server.stop()


def test_prometheus_can_read_what_is_served(address: str) -> None:
    """The page parses, has what was counted, and no birthdays of counters."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=5) as answer:  # noqa: S310 - our own server
        page = answer.read().decode()
    samples = {
        (sample.name, sample.labels.get("outcome")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.labels.get("kind") == "send_mail"
    }
    assert samples["holdfast_jobs_processed_total", "ok"] == 1
    assert "_created" not in page


@pytest.mark.parametrize(("path", "status"), [("/livez", 200), ("/readyz", 503), ("/passwords", 404)])
def test_an_orchestrators_questions_are_answered(address: str, path: str, status: int) -> None:
    """Alive and ready are two questions."""
    try:
        with urllib.request.urlopen(f"{address}{path}", timeout=5) as answer:  # noqa: S310 - our own server
            found = answer.status
    except urllib.error.HTTPError as error:
        found = error.code
        error.close()
    assert found == status


def test_a_scraper_that_hangs_up_is_no_news(capsys: pytest.CaptureFixture[str]) -> None:
    """It has waited for too long, or only looked whether somebody listens."""
    metrics, answering, gone = Metrics(["send_mail"]), list[threading.Thread](), threading.Event()
    asked = threading.Event()

    def slow_queues() -> list[QueueRecord]:
        answering.append(threading.current_thread())
        asked.set()
        gone.wait(30)
        return []

    metrics.queues = slow_queues
    server = MetricsServer(metrics.registry, lives=lambda: True, ready=lambda: True)
    port = int(server.start("127.0.0.1", 0).removesuffix("/metrics").rpartition(":")[2])
    try:
        with socket.create_connection(("127.0.0.1", port)) as scraper:
            scraper.sendall(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
            assert asked.wait(30)
            # Closed so, it is reset: what is sent to it fails.
            scraper.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.set()
        answering[0].join(30)
        assert not answering[0].is_alive()
    finally:
        gone.set()
        server.stop()
    assert capsys.readouterr().err == ""

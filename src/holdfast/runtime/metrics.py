"""Counts events for Prometheus.

Labels are bounded: kinds are those of the application, every other one is counted as ``other``.
Outcomes are counted once the database has accepted them, batch by batch, which also keeps the way of a
job short: see tests/runtime/test_metrics.py for what one job may cost.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from holdfast.errors import DatabaseRefused, DatabaseUnavailable
from holdfast.model.outcome import Complete, Fail, Outcome, PutBack, Stop, Suspend, Transition
from holdfast.model.worker import QueueRecord
from holdfast.runtime.durations import Durations

OTHER = "other"
OUTCOMES = (
    "ok",
    "retry",
    "failed",
    "poison",
    "snoozed",
    "cancelled",
    "lost",
    "released",
    "suspended",
    "held",
)
DURATIONS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0)
BATCHES = (1, 5, 10, 25, 50, 100, 250, 500, 1000)

_PUT_BACK = {Outcome.RETRIED: "retry", Outcome.SNOOZED: "snoozed", Outcome.RELEASED: "released"}

Fields = dict[str, Any]
ReadQueues = Callable[[], Sequence[QueueRecord]]


def outcome_label(decision: Transition) -> str:
    """Return the word under which a decision is counted."""
    match decision:
        case Complete():
            return "ok"
        case Stop():
            return "cancelled"
        case Fail(_, reason):
            return "poison" if reason.startswith("poison: ") else "failed"
        case PutBack(outcome):
            return _PUT_BACK.get(outcome, "released")
        case Suspend(paused=paused):
            return "held" if paused else "suspended"


class Metrics:
    """A subscriber that counts what one process does for the given *kinds*.

    *running* answers the kinds of the attempts that run now, *queues* the rolled-up counts of the
    queues; both are asked at a scrape, from the thread that serves it.
    """

    def __init__(self, kinds: Iterable[str]) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.running: Callable[[], Iterable[str]] = tuple
        self.queues: ReadQueues = tuple
        self._kinds = frozenset(kinds) | {OTHER}
        self._make_job_metrics()
        self._make_process_metrics()
        self._make_request_metrics()
        self._make_runner_metrics()
        self.registry.register(_AtScrape(self))
        self._listened = False
        self._reactions: dict[str, Callable[[Fields], None]] = {
            "attempt.ended": self._attempt_ended,
            "attempts.reported": self._reported,
            "attempts.stale": lambda fields: self.stale.inc(len(fields["fences"])),
            "jobs.claimed": lambda fields: self.claim_size.observe(fields["count"]),
            "jobs.rescued": self._rescued,
            "jobs.staged": lambda fields: self.staged.inc(fields["count"]),
            "lease.renewed": lambda _: self.renewals.inc(),
            "lease.lost": lambda _: self.leases_lost.inc(),
            "lease.delayed": lambda _: self.database_errors.labels("lease").inc(),
            "report.delayed": lambda _: self.database_errors.labels("report").inc(),
            "service.failed": self._service_failed,
            "listen.connected": self._listen_connected,
            "request.ended": self._request_ended,
            "assignments.offered": lambda fields: self.offered.inc(fields["count"]),
            "assignments.ended": lambda fields: _add(self.assignments_ended, fields["outcomes"]),
            "assignments.taken": lambda fields: _add(self.assignments_taken, Tally(fields["fates"].values())),
            "leader.changed": lambda fields: self.term.set(fields["term"] if fields["leads"] else 0),
        }

    def __call__(self, event: str, fields: Fields) -> None:
        reaction = self._reactions.get(event)
        if reaction is not None:
            reaction(fields)

    def _make_job_metrics(self) -> None:
        processed = Counter(
            "holdfast_jobs_processed",
            "Attempts whose outcome is recorded.",
            ("kind", "outcome"),
            registry=self.registry,
        )
        self._duration = Durations(
            "holdfast_job_duration_seconds", "How long handlers ran.", kinds=self._kinds, bounds=DURATIONS
        )
        self.registry.register(self._duration)
        # Bound once: looking a label up costs as much as counting.
        self._processed = {
            (kind, outcome): processed.labels(kind, outcome) for kind in self._kinds for outcome in OUTCOMES
        }
        self.claim_size = self._sizes("holdfast_claim_batch_size", "Jobs that one claim came back with.")
        self.finish_size = self._sizes("holdfast_finish_batch_size", "Outcomes recorded by one statement.")

    def _sizes(self, name: str, about: str) -> Histogram:
        return Histogram(name, about, registry=self.registry, buckets=BATCHES)

    def _make_process_metrics(self) -> None:
        self.stale = self._counter(
            "attempts_stale", "Outcomes refused because another attempt owned the job."
        )
        self.rescued = self._counter("jobs_rescued", "Jobs taken from lost workers by this process.")
        self.staged = self._counter("jobs_staged", "Due jobs made available by this process.")
        self.renewals = self._counter("lease_renewals", "Renewals of this worker's lease.")
        self.leases_lost = self._counter("leases_lost", "How often this worker was declared lost.")
        self.reconnects = self._counter("listen_reconnects", "How often the connection for LISTEN came back.")
        self.failures = Counter(
            "holdfast_service_failures", "Turns that failed.", ("service",), registry=self.registry
        )
        self.database_errors = Counter(
            "holdfast_database_errors",
            "What the database refused or could not take.",
            ("during",),
            registry=self.registry,
        )
        self.term = Gauge(
            "holdfast_leader_term", "The term in which this process leads, else 0.", registry=self.registry
        )

    def _make_request_metrics(self) -> None:
        labels = ("method", "route", "status")
        self.requests = Counter(
            "holdfast_http_requests",
            "Requests that the service has answered.",
            labels,
            registry=self.registry,
        )
        # Bound once: looking labels up costs more than counting.
        self._answers: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self.request_duration = Histogram(
            "holdfast_http_request_duration_seconds",
            "How long the service took to answer; long polls and streams as long as they lasted.",
            ("route",),
            registry=self.registry,
            buckets=DURATIONS,
        )

    def _make_runner_metrics(self) -> None:
        self.offered = self._counter("assignments_offered", "Jobs that this process offered to runners.")
        self.assignments_ended = Counter(
            "holdfast_assignments_ended",
            "Assignments whose end runners told this process.",
            ("outcome",),
            registry=self.registry,
        )
        self.assignments_taken = Counter(
            "holdfast_assignments_taken",
            "Assignments that this process took from runners that live: missing, silent or never accepted.",
            ("fate",),
            registry=self.registry,
        )

    def _counter(self, name: str, about: str) -> Counter:
        return Counter(f"holdfast_{name}", about, registry=self.registry)

    def known(self, kind: str) -> str:
        """Return *kind* as a label."""
        return kind if kind in self._kinds else OTHER

    def _attempt_ended(self, fields: Fields) -> None:
        # Reported attempts are counted in their batch; this one has been completed by its own transaction.
        running = fields["running"]
        if fields["decision"] is None and running.is_settled:
            kind = self.known(running.claimed.kind)
            self._processed[kind, "ok"].inc()
            self._duration.observe(kind, running.seconds)

    def _reported(self, fields: Fields) -> None:
        batch, stale = fields["batch"], fields.get("stale", ())
        self.finish_size.observe(len(batch))
        refused = set(stale)
        # What was given back from the buffer has no kind here: its handler never began.
        told = [one for one in batch if one.kind and one.fence not in refused]
        for one in told:
            self._duration.observe(self.known(one.kind), one.seconds)
        tally = Tally((self.known(one.kind), outcome_label(one.decision)) for one in told)
        for counted, times in tally.items():
            self._processed[counted].inc(times)

    def _rescued(self, fields: Fields) -> None:
        self.rescued.inc(len(fields["rescued"]))
        for one in fields["rescued"]:
            self._processed[self.known(one.kind), one.fate].inc()

    def _service_failed(self, fields: Fields) -> None:
        self.failures.labels(fields["service"]).inc()
        if isinstance(fields["error"], (DatabaseUnavailable, DatabaseRefused)):
            self.database_errors.labels(fields["service"]).inc()

    def _request_ended(self, fields: Fields) -> None:
        method, route, status = fields["method"], fields["route"], fields["status"]
        bound = self._answers.get((method, route, status))
        if bound is None:
            bound = self.requests.labels(method, route, status), self.request_duration.labels(route)
            self._answers[method, route, status] = bound
        counter, duration = bound
        counter.inc()
        duration.observe(fields["seconds"])

    def _listen_connected(self, _: Fields) -> None:
        if self._listened:
            self.reconnects.inc()
        self._listened = True


def _add(counter: Counter, tally: Mapping[str, int]) -> None:
    for label, times in tally.items():
        counter.labels(label).inc(times)


class _AtScrape:
    """What is looked up when somebody asks, instead of being counted along the way."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Yield the numbers of this moment."""
        yield self._in_flight()
        yield from self._queues()

    def _in_flight(self) -> Metric:
        family = GaugeMetricFamily("holdfast_jobs_in_flight", "Attempts that run now.", labels=("kind",))
        tally = Tally(self._metrics.known(kind) for kind in self._metrics.running())
        for kind in sorted(self._metrics._kinds):
            family.add_metric((kind,), tally[kind])
        return family

    def _queues(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily(
            "holdfast_queue_depth",
            "Jobs of the whole fleet, as the leader last counted them.",
            labels=("queue", "state"),
        )
        oldest = GaugeMetricFamily(
            "holdfast_queue_oldest_seconds",
            "How long the oldest available job has waited.",
            labels=("queue",),
        )
        for queue in self._metrics.queues():
            for state in ("available", "scheduled", "running", "waiting"):
                depth.add_metric((queue.name, state), getattr(queue, state))
            oldest.add_metric((queue.name,), _oldest(queue))
        yield depth
        yield oldest


def _oldest(queue: QueueRecord) -> float:
    if queue.oldest_available_at is None or queue.counted_at is None:
        return 0.0
    return max(0.0, (queue.counted_at - queue.oldest_available_at).total_seconds())

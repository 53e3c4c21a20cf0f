"""Counts what one runner does, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from holdfast.runners.agent.agent import Agent

Fields = dict[str, Any]


class RunnerMetrics:
    """A subscriber that counts events; what is so at this moment is asked of the *agent* at a scrape."""

    def __init__(self, agent: Agent) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._assignments = Counter(
            "holdfast_runner_assignments",
            "Assignments that ended on this runner; lost: the server wanted no report.",
            ("kind", "outcome"),
            registry=self.registry,
        )
        self._log_bytes = self._counter("log_bytes", "Bytes of output that the server has.")
        self._lost_bytes = self._counter("log_bytes_lost", "Bytes of output that were dropped.")
        self._silences = self._counter("server_errors", "Requests that the server did not answer.")
        self._gauge("running", "Assignments that run now.", lambda: len(agent.running_kinds()))
        self._gauge("slots", "Assignments that may run at once.", lambda: agent.config.slots)
        self._gauge("silence_seconds", "How long ago the server answered.", lambda: agent.silence)
        self._reactions: dict[str, Callable[[Fields], None]] = {
            "assignment.ended": self._ended,
            "logs.shipped": lambda fields: self._log_bytes.inc(fields["bytes"]),
            "logs.dropped": lambda fields: self._lost_bytes.inc(fields["bytes"]),
            "logs.delayed": lambda _: self._silences.inc(),
            "report.postponed": lambda _: self._silences.inc(),
            "server.unreachable": lambda _: self._silences.inc(),
        }

    def __call__(self, event: str, fields: Fields) -> None:
        reaction = self._reactions.get(event)
        if reaction is not None:
            reaction(fields)

    def _counter(self, name: str, about: str) -> Counter:
        return Counter(f"holdfast_runner_{name}", about, registry=self.registry)

    def _gauge(self, name: str, about: str, ask: Callable[[], float]) -> None:
        Gauge(f"holdfast_runner_{name}", about, registry=self.registry).set_function(ask)

    def _ended(self, fields: Fields) -> None:
        # Kinds are those that this runner has registered, so their number is bounded.
        self._assignments.labels(fields["kind"], fields["outcome"]).inc()

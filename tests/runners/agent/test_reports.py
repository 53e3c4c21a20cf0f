"""What a runner adds to the report of a failure."""

from datetime import timedelta

import msgspec
import pytest

from holdfast.cli.remote import agent_config
from holdfast.rules.backoff import Constant, Custom
from holdfast.runners.agent.messages import Assignment, Outcome, Report
from holdfast.runners.agent.reports import rested
from holdfast.runtime.settings import Settings
from tests.runners.agent import trade

FACTS = {"job": 1, "attempt": 3, "failures": 2, "kind": "pack", "queue": "q", "spec_sha256": "", "token": ""}
ASSIGNMENT = msgspec.convert(FACTS, Assignment)
FAILED = Report(outcome=Outcome.FAILED, reason="it broke")


def test_a_failure_rests_as_its_kind_says_after_so_many() -> None:
    """The backoff is asked for the failure that this one is."""
    report = rested(FAILED, ASSIGNMENT, {"pack": Custom(lambda failures: failures * 10)})
    assert (report.delay, report.error) == (30.0, "it broke")


def test_a_backoff_that_gives_no_rest_is_complained_of() -> None:
    """The default takes its place, and the error of the job says why, as on a worker."""
    report = rested(FAILED, ASSIGNMENT, {"pack": Custom(lambda _: -1)})
    assert report.delay is not None
    assert report.delay > 0
    assert "it broke\n\nbackoff: " in (report.error or "")
    assert "the default is used" in (report.error or "")


@pytest.mark.parametrize(
    ("report", "retry"),
    [
        (FAILED, {"kind": "constant", "delay": 5}),
        (Report(outcome=Outcome.FAILED, delay=1.0), None),
        (Report(outcome=Outcome.FAILED, retry=False), None),
        (Report(outcome=Outcome.RELEASED), None),
        (Report(outcome=Outcome.COMPLETED), None),
    ],
)
def test_what_is_decided_elsewhere_is_left_alone(report: Report, retry: object) -> None:
    """By the job's own policy, by its handler, or because nothing has failed."""
    assignment = msgspec.structs.replace(ASSIGNMENT, retry=retry)
    assert rested(report, assignment, {"pack": Constant(timedelta(seconds=9))}) is report


def test_a_kind_that_the_runner_does_not_know_rests_as_the_server_says() -> None:
    """Such as a command."""
    assert rested(FAILED, ASSIGNMENT, {}) is FAILED


def test_the_command_takes_kinds_and_backoffs_from_the_application() -> None:
    """As a worker does."""
    settings = Settings(server="http://127.0.0.1:1", app="tests.runners.agent.trade:app")
    config = agent_config(settings, capacity=(), once=False, idle_exit=None)
    assert config.kinds == tuple(sorted(trade.app.handlers))
    assert config.backoffs["persist"] == Constant(timedelta(0))

"""Events become lines: one wording each, for people and for machines."""

import ast
import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.runtime.console import JsonLines, log_to
from holdfast.runtime.logbook import FIELDS, LINES, Logbook

SOURCE = Path(holdfast.__file__).parent


@pytest.fixture
def log() -> Iterator[Any]:
    """Sends the log to a string in the shape and at the level that the test asks for."""
    handlers = []
    root = logging.getLogger()
    level = root.level

    def begin(**options: str) -> io.StringIO:
        stream = io.StringIO()
        handlers.append(log_to(stream, **options))
        return stream

    yield begin
    for handler in handlers:
        root.removeHandler(handler)
    root.setLevel(level)


def emitted_events() -> set[str]:
    """Every event that the source emits by name."""
    return {
        node.args[0].value
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "emit"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    }


def test_every_event_has_its_wording_and_no_wording_is_idle() -> None:
    """The table of lines and the events of the source are the same set."""
    emitted = emitted_events() - {"attempt.ended"}
    assert emitted == set(LINES), (
        f"without a line: {sorted(emitted - set(LINES))}; never emitted: {sorted(set(LINES) - emitted)}"
    )


def test_a_line_for_machines_has_the_event_its_fields_and_the_sentence(log: Any) -> None:
    """JSON lines keep facts as facts."""
    stream = log(shape="json")
    Logbook()("worker.registered", {"worker_id": 7, "name": "w7"})
    line = json.loads(stream.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "level": "info",
        "message": "worker 7 (w7) is online",
        "event": "worker.registered",
        "worker_id": 7,
        "name": "w7",
    }


def test_a_line_for_people_is_a_sentence(log: Any) -> None:
    """On a terminal the sentence says it all."""
    stream = log(shape="human")
    Logbook()("lease.delayed", {"worker_id": 7, "error": OSError("no route")})
    assert "the lease of worker 7 could not be renewed: OSError: no route" in stream.getvalue()


def test_a_line_for_people_moves_no_cursor(log: Any) -> None:
    """What a job or a server wrote into an error is shown, not obeyed; an application may colour its own."""
    stream = log(shape="human")
    Logbook()("lease.delayed", {"worker_id": 7, "error": OSError("\x1b[2J\x9b1mgone")})
    logging.getLogger("shop.mail").warning("\x1b[1msent")
    assert "OSError: \\u001b[2J\\u009b1mgone" in stream.getvalue()
    assert "\x1b[1msent" in stream.getvalue()


def test_an_outage_is_told_at_once_and_then_once_in_a_while(log: Any) -> None:
    """A lease is tried every second: the log has the first failure and one each 30 s, with a count."""
    stream = log(shape="json")
    now = 0.0
    logbook = Logbook(clock=lambda: now)
    for second in range(61):
        now = float(second)
        logbook("lease.delayed", {"worker_id": 7, "error": OSError("no route")})
    logbook("lease.renewed", {"worker_id": 7, "state": None})
    logbook("lease.delayed", {"worker_id": 7, "error": OSError("gone again")})
    told = [json.loads(line)["message"] for line in stream.getvalue().splitlines()]
    plain = "the lease of worker 7 could not be renewed: OSError: "
    assert told == [
        f"{plain}no route",
        f"{plain}no route (31 failures so far)",
        f"{plain}no route (61 failures so far)",
        f"{plain}gone again",
    ]


def test_lines_of_the_application_have_the_same_shape(log: Any) -> None:
    """Whoever uses the standard logging module gets JSON too, with the exception."""
    stream = log(shape="json")
    try:
        raise ValueError("spilled")
    except ValueError:
        logging.getLogger("shop.mail").exception("cannot send to %s", "a@b.c")
    line = json.loads(stream.getvalue())
    assert (line["level"], line["message"], line["logger"]) == ("error", "cannot send to a@b.c", "shop.mail")
    assert "ValueError: spilled" in line["exception"]


def test_a_traceback_for_people_shows_no_values(log: Any) -> None:
    """What a handler holds in its variables, such as a password, is nobody's business in a log."""
    stream = log(shape="human")
    password = "hunter" + "2"
    try:
        raise ValueError(f"the server refused {len(password)} letters")
    except ValueError:
        logging.getLogger("shop.mail").exception("cannot log in")
    assert "ValueError: the server refused 7 letters" in stream.getvalue()
    assert password not in stream.getvalue()


def test_no_line_for_machines_is_lost_for_its_letters() -> None:
    """The name of a file may hold bytes that are no Unicode; so may the error and the fields that name it."""
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    shown = "caf\\udce9"
    try:
        raise ValueError(name)
    except ValueError:
        raised = sys.exc_info()
    # Not by way of a logger: those who run tests side by side cannot pass such a log on.
    record = logging.LogRecord("shop.mail", logging.ERROR, "", 0, "cannot read %s", (name,), raised)
    line = json.loads(JsonLines().format(record))
    assert line["message"] == f"cannot read {shown}"
    assert f"ValueError: {shown}" in line["exception"]
    setattr(record, FIELDS, ("log.lost", {"lines": 3, "error": name}))
    assert json.loads(JsonLines().format(record))["error"] == shown


def test_a_finished_job_is_no_news_and_a_failing_one_is(log: Any) -> None:
    """At level info the happy path is silent, however many jobs there are."""
    from holdfast.model.outcome import Complete, Fail, Outcome, PutBack, Suspend

    class Claimed:
        id, kind, attempt = 5, "send_mail", 2

    class Running:
        claimed, seconds = Claimed, 0.25

    stream = log(shape="json")
    logbook = Logbook()
    logbook("attempt.started", {"running": Running})
    logbook("attempt.ended", {"running": Running, "decision": Complete(None)})
    assert stream.getvalue() == ""
    again = PutBack(Outcome.RETRIED, 30.0, True, "OSError: away")
    logbook("attempt.ended", {"running": Running, "decision": again})
    logbook("attempt.ended", {"running": Running, "decision": Fail("…", "poison: bad payload")})
    kept = Suspend("NonDeterministicRun: mend it", paused=True)
    logbook("attempt.ended", {"running": Running, "decision": kept})
    logbook("attempt.ended", {"running": Running, "decision": Suspend("a signal")})
    first, second, third = map(json.loads, stream.getvalue().splitlines())
    assert (first["level"], first["job_id"], first["kind"], first["attempt"]) == (
        "warning",
        5,
        "send_mail",
        2,
    )
    assert first["message"] == "job 5 (send_mail) is retried in 30.0 s (OSError: away) in attempt 2"
    assert second["level"] == "error"
    assert (third["level"], "waits until somebody resumes it (NonDet" in third["message"]) == (
        "warning",
        True,
    )


def test_an_event_without_wording_is_still_logged(log: Any) -> None:
    """A name alone is better than silence."""
    stream = log(shape="json")
    Logbook()("moon.landed", {"pads": 3})
    line = json.loads(stream.getvalue())
    assert (line["message"], line["event"], line["pads"]) == ("moon.landed", "moon.landed", 3)


@pytest.mark.parametrize("shape", ["json", "human"])
def test_a_line_of_a_handler_names_its_job(log: Any, shape: str) -> None:
    """What `Job.log` knows of the job stands in the line, for people and for machines."""
    stream = log(shape=shape)
    facts = {"job_id": 42, "kind": "greet", "attempt": 3}
    logging.LoggerAdapter(logging.getLogger("holdfast.job"), facts).warning("the mail server is away")
    if shape == "json":
        line = json.loads(stream.getvalue())
        assert {name: line[name] for name in facts} == facts
    else:
        for part in ("job_id=42", "kind=greet", "attempt=3"):
            assert part in stream.getvalue()

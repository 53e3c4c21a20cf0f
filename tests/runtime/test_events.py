"""Events reach their subscribers, and subscribers cannot hurt who emits."""

from typing import Any

import pytest

from holdfast.runtime.events import Events


def test_a_subscriber_that_fails_hurts_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    """A log on a full disk costs no job and no lease: the others are told, and stderr says what happened."""
    told: list[tuple[str, dict[str, Any]]] = []

    def full(_event: str, _fields: dict[str, Any]) -> None:
        msg = "no space left on device"
        raise OSError(msg)

    events = Events(full, lambda event, fields: told.append((event, fields)))
    events.emit("lease.delayed", worker_id=1)
    assert told == [("lease.delayed", {"worker_id": 1})]
    complaint = capsys.readouterr().err
    assert complaint.startswith("a subscriber failed at event 'lease.delayed':\nTraceback")
    assert complaint.endswith("OSError: no space left on device\n")

"""A lease that nobody else can have taken over meanwhile, or none."""

import sys
import threading
import time

import pytest

from holdfast.model.worker import WorkerState
from holdfast.runtime.events import Events
from holdfast.store.dedicated import DedicatedConnection
from holdfast.testing import Probe, ThrowawayDatabase
from holdfast.worker import lease
from holdfast.worker.lease import Lease


def lease_of(db: ThrowawayDatabase, probe: Probe) -> Lease:
    """A lease for half a minute that is renewed all the time."""
    return Lease(db.config, Events(probe), ttl=30.0, every=0.01, patience=lambda: 60.0)


async def test_a_machine_that_slept_finds_its_lease_run_out(
    db: ThrowawayDatabase, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its jobs run elsewhere by then: nothing begins here, though its other clocks stood still meanwhile."""
    one = lease_of(db, probe)
    assert one.holds
    awake = lease.now()
    monkeypatch.setattr(lease, "now", lambda: awake + 31.0)
    assert not one.holds


@pytest.mark.skipif(sys.platform != "linux", reason="no other system has this clock")
def test_the_clock_of_a_lease_goes_on_while_the_machine_sleeps() -> None:
    """As man 2 clock_gettime has it of CLOCK_BOOTTIME."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= lease.now() <= time.clock_gettime(time.CLOCK_BOOTTIME)


async def test_no_surprise_ends_the_renewals(
    db: ThrowawayDatabase, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread says what it met, and tries again: a lease that nobody renews runs out."""
    monkeypatch.setattr(lease, "RETRY", 0.01)
    renewed, tries = threading.Event(), list[object]()

    def surprise(*given: object) -> WorkerState:
        tries.append(given)
        if len(tries) == 1:
            raise MemoryError
        renewed.set()
        return WorkerState.ONLINE

    monkeypatch.setattr(DedicatedConnection, "run", surprise)
    one = lease_of(db, probe)
    one.start(1, lambda _: None)
    try:
        assert renewed.wait(10)
    finally:
        one.stop()
    [delayed] = probe.seen("lease.delayed")
    assert isinstance(delayed["error"], MemoryError)

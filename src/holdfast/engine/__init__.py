"""Bring your own engine: what Holdfast's own workflows stand on, as interfaces for others.

A workflow engine needs a queue of runs with leases, checkpoints, progress of steps, a log of their calls, and
signals.  `RunQueue`, `Checkpointer`, `Progress`, `ActivityLog` and `Signals` say what of them an engine may
rely on; `EngineStore` is all five on PostgreSQL.

    async with EngineStore(dsn, EngineConfig(kinds=["order"])) as store:
        for claim in await store.queue.claim():
            async with keeping(store.queue, claim) as keeper:
                ...
            await store.queue.end(claim, Complete({"shipped": True}))
"""

from holdfast.engine.claims import Claim
from holdfast.engine.config import EngineConfig
from holdfast.engine.interfaces import (
    Activity,
    ActivityLog,
    Checkpointer,
    Engine,
    Progress,
    RunQueue,
    SavedState,
    Signal,
    Signals,
    StepReport,
)
from holdfast.engine.keeping import Keeper, keeping
from holdfast.engine.outcomes import Complete, Fail, Outcome, Release, Suspend
from holdfast.engine.store import EngineStore
from holdfast.model.outcome import Cancel, Retry, Snooze
from holdfast.model.step import ActivityRecord, StepRecord, StepState
from holdfast.model.worker import Renewal
from holdfast.runtime.events import Events
from holdfast.store.workers import Rescued

__all__ = [
    "Activity",
    "ActivityLog",
    "ActivityRecord",
    "Cancel",
    "Checkpointer",
    "Claim",
    "Complete",
    "Engine",
    "EngineConfig",
    "EngineStore",
    "Events",
    "Fail",
    "Keeper",
    "Outcome",
    "Progress",
    "Release",
    "Renewal",
    "Rescued",
    "Retry",
    "RunQueue",
    "SavedState",
    "Signal",
    "Signals",
    "Snooze",
    "StepRecord",
    "StepReport",
    "StepState",
    "Suspend",
    "keeping",
]

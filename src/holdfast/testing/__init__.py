"""For tests of applications: a throw-away database, drain, inline mode, a clock, a probe for events."""

from holdfast.testing.clock import Clock
from holdfast.testing.database import ThrowawayDatabase
from holdfast.testing.drain import drain
from holdfast.testing.engine import EngineConformance, EngineGround
from holdfast.testing.inline import InlineClient
from holdfast.testing.inline_job import InlineJob
from holdfast.testing.inline_sync import SyncInlineClient
from holdfast.testing.probe import Probe
from holdfast.testing.report import DrainedAttempt, DrainReport
from holdfast.testing.synchronous import SyncThrowawayDatabase

__all__ = [
    "Clock",
    "DrainReport",
    "DrainedAttempt",
    "EngineConformance",
    "EngineGround",
    "InlineClient",
    "InlineJob",
    "Probe",
    "SyncInlineClient",
    "SyncThrowawayDatabase",
    "ThrowawayDatabase",
    "drain",
]

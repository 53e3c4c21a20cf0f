"""For tests of applications: a throw-away database, a probe for events, drain, inline mode, a clock."""

from holdfast.testing.database import ThrowawayDatabase
from holdfast.testing.probe import Probe

__all__ = ["Probe", "ThrowawayDatabase"]

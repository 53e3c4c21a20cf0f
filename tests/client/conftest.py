"""An operator and a clock for tests of what operators do."""

import pytest

from holdfast.client.operator import Operator
from holdfast.testing import Clock, ThrowawayDatabase


@pytest.fixture
def operator(db: ThrowawayDatabase) -> Operator:
    """Acts on the test's schema as alice."""
    return Operator(db.database, "alice")


@pytest.fixture
def clock(db: ThrowawayDatabase) -> Clock:
    """The clock of the test's schema."""
    return Clock(db)

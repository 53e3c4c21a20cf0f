"""A forge for each test that asks for one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.bench import Bench, opened


@pytest.fixture
def bench(dsn: str, tmp_path: Path) -> Iterator[Bench]:
    """A forge of the test's own."""
    with opened(dsn, tmp_path) as bench:
        yield bench

"""The herd of runners, small: it measures something, and every job is done."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_small_herd_finishes_every_job_it_claims() -> None:
    """Forty claims by twenty runners over real HTTP; none is empty, none refused."""
    command = [sys.executable, "-m", "bench.herd", "--runners", "20", "--rate", "20", "--seconds", "2"]
    done = subprocess.run(
        [*command, "--idle", "0"], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "40 finished, 0 empty answers, refused {}" in done.stdout
    assert re.search(r"claim to offer: p50 \d+ ms, p99 \d+ ms", done.stdout)

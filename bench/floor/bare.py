"""The floor that PostgreSQL itself sets: the same work as bare SQL, driven by pgbench and psql.

No job is run, nothing is decoded and nothing decided; what is left is what the statements cost.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

from bench.cluster import Cluster
from bench.exactly_once import NotExactlyOnce
from bench.peers.load import Load

HERE = Path(__file__).parent
BATCH = 500
PGBENCH = ("-n", "-M", "prepared")
# How long bare workers rest between two claims: about as long as those of Holdfast do beside eight clients.
REST = "5 ms"
# They are given so long to end what came, in seconds.
PATIENCE = 60.0
ENDED = "select count(*), count(distinct job_id) from finished_jobs"
RATE = re.compile(r"^tps = ([\d.]+)", re.MULTILINE)


def setup(cluster: Cluster) -> None:
    """Make the tables and pin the plans."""
    cluster.run("psql", "-qX", "-v", "ON_ERROR_STOP=1", "-f", str(HERE / "schema.sql"))


def copy_in(cluster: Cluster, load: Load) -> float:
    """Put the rows of the load's jobs in by COPY; answers jobs per second."""
    pad, ids = load.padding(), load.numbers()
    jobs = "".join(f'{n}\tjob\tdefault\t{{"number": {n}, "pad": "{pad}"}}\n' for n in ids)
    live = "".join(f"{n}\tdefault\tjob\t5\tavailable\n" for n in ids)
    script = (
        f"begin;\ncopy jobs (id, kind, queue, args) from stdin;\n{jobs}\\.\n"
        f"copy live_jobs (job_id, queue, kind, priority, state) from stdin;\n{live}\\.\ncommit;\n"
    )
    began = time.monotonic()
    cluster.run("psql", "-qX", "-v", "ON_ERROR_STOP=1", stdin=script)
    return load.jobs / (time.monotonic() - began)


def drain(cluster: Cluster, load: Load, *, clients: int = 1) -> float:
    """Claim and finish all jobs in batches; answers jobs per second.  Raises `NotExactlyOnce`."""
    rounds, rest = divmod(load.jobs, BATCH * clients)
    if rest:
        msg = f"{load.jobs} jobs are no multiple of {clients} clients with batches of {BATCH}"
        raise ValueError(msg)
    options = (*PGBENCH, "-c", str(clients), "-t", str(rounds), *_batches(), "-f", str(HERE / "drain.sql"))
    printed = cluster.run("pgbench", *options)
    check_drained(cluster, load)
    return _rate(printed) * BATCH


def check_drained(cluster: Cluster, load: Load) -> None:
    """Hold the history against what there was to do; raises `NotExactlyOnce`."""
    ended, once = cluster.run("psql", "-qXAt", "-c", ENDED).strip().split("|")
    left = _left(cluster)
    if (ended, once, left) != (str(load.jobs), str(load.jobs), 0):
        msg = f"of {load.jobs} jobs {once} ended, {ended} ends were written and {left} are left"
        raise NotExactlyOnce(msg)


def insert(cluster: Cluster, load: Load) -> float:
    """Insert job by job, a commit each, from the load's clients; answers jobs per second."""
    clients, each = str(load.clients), str(load.jobs // load.clients)
    pad, script = f"pad={load.padding()}", str(HERE / "insert.sql")
    printed = cluster.run("pgbench", *PGBENCH, "-c", clients, "-t", each, "-D", pad, "-f", script)
    return _rate(printed)


def insert_beside_workers(cluster: Cluster, load: Load, *, workers: int) -> float:
    """Insert as `insert` does while so many connections claim and finish in batches.

    Raises `NotExactlyOnce`.
    """
    script = f"\\sleep {REST}\n{(HERE / 'drain.sql').read_text('utf-8')}"
    # What they do has no end of its own; "-" is a script that comes in by the pipe.
    options = (*PGBENCH, "-c", str(workers), "-T", "3600", *_batches(), "-f", "-")
    with cluster.running("pgbench", *options, stdin=script) as program:
        rate = insert(cluster, load)
        deadline = time.monotonic() + PATIENCE
        while _left(cluster) and program.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
    check_drained(cluster, load)
    return rate


def _batches() -> tuple[str, str]:
    return "-D", f"batch={BATCH}"


def _left(cluster: Cluster) -> int:
    return int(cluster.run("psql", "-qXAt", "-c", "select count(*) from live_jobs"))


def _rate(printed: str) -> float:
    if (found := RATE.search(printed)) is None:
        msg = f"pgbench did not tell a rate: {printed}"
        raise ValueError(msg)
    return float(found[1])

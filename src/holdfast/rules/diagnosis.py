"""What the doctor makes of what it sees: facts in, findings with a remedy out."""

from __future__ import annotations

from shlex import quote

from holdfast.model.delivery import QUEUE as DELIVERIES
from holdfast.model.health import (
    DeadRows,
    Finding,
    HorizonHolder,
    LeaderHealth,
    Level,
    LockWait,
    LostWorker,
    QueueHealth,
    RouteHealth,
    ServerFacts,
)

OLDEST_VERSION, NEWEST_VERSION = 15, 18
SKEW = 2.0
LONG_WAIT = 5.0
LONG_TRANSACTION, ENDLESS_TRANSACTION = 300.0, 3600.0
# Below this nobody notices dead rows.
MANY_DEAD = 10_000
LATE = 30.0
LATELY = 3600.0


def ok(check: str, what: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(check, Level.OK, what)


def warn(check: str, what: str, remedy: str) -> Finding:
    """Return a finding that somebody should look into."""
    return Finding(check, Level.WARN, what, remedy)


def bad(check: str, what: str, remedy: str) -> Finding:
    """Return a finding that keeps work from being done, or safe."""
    return Finding(check, Level.BAD, what, remedy)


def of_server(facts: ServerFacts) -> list[Finding]:
    """Judge version, role, safety and room of the server."""
    return [_version(facts), _role(facts), _safety(facts), _room(facts)]


def _version(facts: ServerFacts) -> Finding:
    what = f"PostgreSQL {facts.version}"
    supported = f"{OLDEST_VERSION} to {NEWEST_VERSION}"
    if facts.major < OLDEST_VERSION:
        return bad(
            "version", f"{what} is too old", f"upgrade the server: Holdfast needs PostgreSQL {supported}"
        )
    if facts.major > NEWEST_VERSION:
        return warn(
            "version", f"{what} is newer than what was tested", f"tested are {supported}: look for an update"
        )
    return ok("version", what)


def _role(facts: ServerFacts) -> Finding:
    if facts.is_replica:
        return bad(
            "role", "this server is a replica and cannot be written", "set database_url to the primary"
        )
    return ok("role", "this server can be written")


def _safety(facts: ServerFacts) -> Finding:
    lossy = [name for name in facts.unsafe if name != "autovacuum"]
    if lossy:
        names = " and ".join(lossy)
        return warn(
            "durability",
            f"{names} off: a crash of the server may lose accepted jobs",
            "turn on what keeps writes safe",
        )
    if "autovacuum" in facts.unsafe:
        return bad(
            "durability", "autovacuum is off: claims become slower with every job", "turn autovacuum on"
        )
    return ok("durability", "writes are safe and autovacuum is on")


def _room(facts: ServerFacts) -> Finding:
    what = f"{facts.connections} of {facts.max_connections} connections are in use"
    if facts.connections > 0.9 * facts.max_connections:
        return warn("connections", what, "raise max_connections, or run fewer processes or slots")
    return ok("connections", what)


def of_clock(skew: float, uncertainty: float) -> Finding:
    """Judge by how much this machine's clock differs from the server's."""
    what = f"this machine's clock is {abs(skew):.1f} s {'behind' if skew > 0 else 'ahead of'} the server's"
    if abs(skew) > SKEW + uncertainty:
        return warn("clock", what, "synchronise both: leases follow the server's clock, run_at follows yours")
    return ok("clock", "this machine and the server agree on the time")


def of_lock_waits(waits: list[LockWait]) -> list[Finding]:
    """Judge sessions that wait for locks."""
    if not waits:
        return [ok("locks", f"nobody waits longer than {LONG_WAIT:g} s for a lock")]
    return [
        warn(
            "locks",
            f"session {wait.pid} ({wait.application or 'unnamed'}) has waited {wait.seconds:.0f} s for "
            f"{', '.join(map(str, wait.blockers)) or 'a lock'}",
            "; ".join(f"select pg_terminate_backend({pid})" for pid in wait.blockers) or "look at pg_locks",
        )
        for wait in waits
    ]


def of_horizon(holders: list[HorizonHolder]) -> list[Finding]:
    """Judge what keeps dead rows from being removed."""
    old = [
        one for one in holders if one.source == "replication slot" or (one.seconds or 0.0) > LONG_TRANSACTION
    ]
    if not old:
        return [ok("horizon", "no old transaction keeps dead rows alive")]
    return [_holder(one) for one in old]


def _holder(one: HorizonHolder) -> Finding:
    remedy = {
        "transaction": f"end it: select pg_terminate_backend({one.name})",
        "prepared transaction": f"end it: rollback prepared '{one.name}'",
        "replication slot": f"if nobody needs it: select pg_drop_replication_slot('{one.name}')",
    }[one.source]
    age = "" if one.seconds is None else f" for {one.seconds / 60:.0f} min"
    what = f"{one.source} {one.name} ({one.detail}) holds the vacuum horizon{age}"
    endless = (one.seconds or 0.0) > ENDLESS_TRANSACTION
    return bad("horizon", what, remedy) if endless else warn("horizon", what, remedy)


def of_dead_rows(rows: DeadRows | None) -> Finding:
    """Judge how much of live_jobs is dead."""
    if rows is None or rows.dead < MANY_DEAD or rows.dead < rows.live:
        return ok("bloat", f"live_jobs has {0 if rows is None else rows.dead:,} dead rows")
    ago = "never" if rows.vacuumed is None else f"{rows.vacuumed / 60:.0f} min ago"
    return warn(
        "bloat",
        f"live_jobs has {rows.dead:,} dead rows for {rows.live:,} live ones, last vacuumed {ago}",
        "see what holds the vacuum horizon; if nothing does: vacuum live_jobs",
    )


def of_queues(queues: list[QueueHealth]) -> list[Finding]:
    """Judge the queues that have jobs to claim."""
    found = [finding for queue in queues if (finding := _queue(queue)) is not None]
    return found or [ok("queues", "every queue with jobs to claim has a worker that knows their kinds")]


def _queue(queue: QueueHealth) -> Finding | None:
    waits = f"queue {queue.name} has jobs to claim (for {queue.oldest:.0f} s)"
    if (closed := _closed("queues", waits, queue.name, queue)) is not None:
        return closed
    if queue.name == DELIVERIES and (queue.workers == 0 or queue.unknown):
        return bad("queues", f"{waits} and no service carries them", "run `holdfast serve`")
    if queue.workers == 0:
        return bad(
            "queues",
            f"{waits} and no online worker",
            f"start one: holdfast worker --queues {queue.name} --app ...",
        )
    if queue.unknown:
        kinds = ", ".join(queue.unknown[:10])
        return bad(
            "queues",
            f"{waits} of kinds that none of its {queue.workers} online workers knows: {kinds}",
            "start a worker whose application has a handler for them, or cancel them",
        )
    return None


def _closed(check: str, waits: str, name: str, queue: QueueHealth | RouteHealth) -> Finding | None:
    if queue.paused:
        return warn(check, f"{waits} and is paused", f"holdfast queues resume {name}")
    if queue.max_running == 0:
        return warn(check, f"{waits} and its limit is 0", f"holdfast queues limit {name} none")
    return None


def of_routes(routes: list[RouteHealth]) -> list[Finding]:
    """Judge whether runners fit the jobs that only they may take."""
    found = [finding for route in routes if (finding := _route(route)) is not None]
    # Of a queue that is paused one shape says as much as all.
    return list(dict.fromkeys(found)) or [ok("runners", "every job for runners has one that fits it")]


def _route(route: RouteHealth) -> Finding | None:
    waits = f"queue {route.queue} has jobs for runners"
    if (closed := _closed("runners", waits, route.queue, route)) is not None:
        return closed
    if route.online > 0:
        return None
    labels = "".join(f" --label {quote(label)}" for label in sorted(route.labels))
    start = f"start one: holdfast runner --queues {quote(route.queue)}{labels}"
    asks = [f"kind {route.kind}"]
    if route.labels:
        asks.append(f"labels {', '.join(sorted(route.labels))}")
    if route.runner is not None:
        asks.append(f"runner {route.runner}")
        start += f" --name {quote(route.runner)}"
    what = f"{waits} ({'; '.join(asks)}; for {route.oldest:.0f} s) and no runner that fits is online"
    if route.draining > 0:
        what, start = f"{what}, but {route.draining} that drain", "holdfast workers resume ID"
    # A fleet may start its runners when there is something to do.
    return warn("runners", what, start) if route.oldest < LATE else bad("runners", what, start)


def of_leader(leader: LeaderHealth) -> list[Finding]:
    """Judge whether somebody does maintenance, and does it in time."""
    if not leader.leads:
        return [
            bad(
                "leader",
                "nobody leads: nothing is staged, rescued, scheduled or pruned",
                "start a worker or `up`",
            )
        ]
    if leader.ahead is not None:
        return [
            bad(
                "leader",
                f"the leader was heard {leader.ahead:.0f} s in the future: the server's clock was set back",
                "start a worker or `up`, if none runs: it leads within seconds",
            )
        ]
    late = {
        "a scheduled job": leader.overdue_job,
        "a schedule's tick": leader.overdue_tick,
        "what endpoints are to be told": leader.overdue_deliveries,
    }
    found = [
        warn(
            "leader",
            f"{what} is overdue by {seconds:.0f} s",
            "look into the leader's log for failing services and held deliveries",
        )
        for what, seconds in late.items()
        if seconds is not None and seconds > LATE
    ]
    return found or [ok("leader", f"somebody leads, in term {leader.term}")]


def of_rests(filled: list[str]) -> Finding:
    """Judge rows that lie outside the daily partitions."""
    if not filled:
        return ok("partitions", "every row lies in the partition of its day")
    return warn(
        "partitions",
        f"{', '.join(filled)} holds rows",
        "a leader moves them within minutes; if not, look into its log for the partitioner",
    )


def of_held(job_ids: list[int]) -> Finding:
    """Judge jobs that wait for a person who may not know of it."""
    if not job_ids:
        return ok("runs", "no job waits for a person")
    first = ", ".join(str(one) for one in job_ids[:5])
    return warn(
        "runs",
        f"{_counted(len(job_ids), 'job waits', 'jobs wait')} for a resume: {first}",
        "`holdfast jobs show ID` says why and what to do; a run goes on by `holdfast runs resume ID`",
    )


def of_lost_workers(lost: list[LostWorker]) -> Finding:
    """Judge how many workers died lately."""
    if not lost:
        return ok("workers", "no worker was lost within the last hour")
    names = ", ".join(f"{one.id} ({one.name}) {one.ago / 60:.0f} min ago" for one in lost[:5])
    return warn(
        "workers",
        f"{_counted(len(lost), 'worker was', 'workers were')} lost within the last hour: {names}",
        "look into their logs and the system's for crashes, kills for memory, and stalls",
    )


def _counted(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"

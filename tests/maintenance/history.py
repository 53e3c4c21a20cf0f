"""History at hand: ended jobs of any age with all that belongs to them, and where their rows lie."""

from datetime import datetime, timedelta

from tests.store.scene import Scene

DAY = timedelta(days=1)


async def ended(
    scene: Scene, at: datetime, count: int = 1, *, outcome: str = "completed", queue: str = "default"
) -> list[int]:
    """Jobs that ended at a time, each with an earlier attempt, a checkpoint and logs of both sorts."""
    job_ids = await scene.enqueue(count, queue=queue)
    for text in (
        "delete from holdfast.live_jobs where job_id = any ($1)",
        "insert into holdfast.attempts (job_id, attempt, outcome, ended_at) "
        "select j, 1, 'retried', holdfast.now() from unnest($1::bigint[]) j",
        "insert into holdfast.checkpoints select j, 1, 1, '{}', holdfast.now() from unnest($1::bigint[]) j",
    ):
        await scene.db.fetch(text, job_ids)
    await scene.db.fetch(
        "insert into holdfast.job_logs select j, 1, 0, $2, 'info', 'hello' from unnest($1::bigint[]) j",
        job_ids,
        at,
    )
    for text in (
        "insert into holdfast.log_streams (job_id, attempt, stream, opened_at, written_at) "
        "select j, 1, 'stdout', $2, $2 from unnest($1::bigint[]) j",
        "insert into holdfast.log_chunks (job_id, attempt, stream, byte_offset, length, at, data) "
        "select j, 1, 'stdout', 0, 5, $2, 'hello' from unnest($1::bigint[]) j",
    ):
        await scene.db.fetch(text, job_ids, at)
    await scene.db.fetch(
        "insert into holdfast.finished_jobs (job_id, queue, kind, outcome, attempt, failures, finished_at) "
        "select j, $4, 'greet', $3, 2, 0, $2 from unnest($1::bigint[]) j",
        job_ids,
        at,
        outcome,
        queue,
    )
    return job_ids


async def remains(scene: Scene) -> dict[str, set[int]]:
    """The ids of the jobs of which something is left, by table."""
    columns = {
        "jobs": "id",
        "finished_jobs": "job_id",
        "attempts": "job_id",
        "checkpoints": "job_id",
        "job_logs": "job_id",
        "log_streams": "job_id",
        "log_chunks": "job_id",
    }
    return {
        table: {row[0] for row in await scene.db.fetch(f"select {column} from holdfast.{table}")}  # noqa: S608 - fixed names
        for table, column in columns.items()
    }


async def places(scene: Scene, table: str = "finished_jobs") -> dict[str, int]:
    """How many rows of a partitioned table lie in which partition."""
    text = f"select tableoid::regclass::text, count(*) from holdfast.{table} group by 1 order by 1"  # noqa: S608 - a fixed name
    return {str(name).rpartition(".")[2]: rows for name, rows in await scene.db.fetch(text)}


async def make_day(scene: Scene, parent: str, day: datetime) -> str:
    """Make the partition of a day, as a leader of that time did; answers its name."""
    made = await scene.db.value("select holdfast.make_partition($1, $2::date)", parent, day.date())
    assert made == "made"
    return f"{parent}_{day:%Y%m%d}"


async def partitions_of(scene: Scene, parent: str) -> list[str]:
    """The daily partitions of a table."""
    text = """
        select child.relname::text from pg_inherits i join pg_class child on child.oid = i.inhrelid
        where i.inhparent = ('holdfast.' || $1)::regclass and child.relname !~ '_rest$' order by 1"""
    return [row[0] for row in await scene.db.fetch(text, parent)]

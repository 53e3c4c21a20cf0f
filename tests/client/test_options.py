"""The options of an enqueue: each wrong one is named, each right one is kept."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase

app = holdfast.App()


@app.job
async def greet() -> None:
    """Nobody runs it here."""


WRONG: list[tuple[str, Any]] = [
    ("queue", ""),
    ("queue", 5),
    ("queue", "q" * 101),
    ("queue", "a\x00b"),
    ("queue", "\ud800"),
    ("priority", -1),
    ("priority", 10),
    ("priority", 5.0),
    ("priority", True),
    ("priority", "high"),
    ("max_attempts", 0),
    ("max_attempts", 10_001),
    ("timeout", 0),
    ("timeout", -1),
    ("timeout", float("nan")),
    ("timeout", float("inf")),
    ("timeout", 10**400),
    ("timeout", timedelta(days=4000)),
    ("timeout", "5 min"),
    ("timeout", True),
    ("delay", -0.001),
    ("delay", timedelta(days=-1)),
    ("delay", float("nan")),
    ("delay", 10**400),
    ("delay", "soon"),
    ("run_at", "2031-01-01"),
    ("run_at", datetime(2031, 1, 1)),  # noqa: DTZ001 - the naive one is what is refused
    ("run_at", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))),
    ("run_at", datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-12)))),
    ("retry", "exponential"),
    ("retry", {"kind": "constant"}),
    ("unique_key", ""),
    ("unique_key", 7),
    ("unique_key", "k" * 501),
    ("unique_key", "\x00"),
    ("unique_policy", "ignore"),
    ("unique_policy", None),
    ("unique_policy", []),
    ("concurrency_key", ""),
    ("concurrency_key", "\udfff"),
    ("tags", "one"),
    ("tags", b"one"),
    ("tags", 5),
    ("tags", {"a": 1}),
    ("tags", [""]),
    ("tags", [5]),
    ("tags", ["t"] * 51),
    ("tags", ["a\x00"]),
    ("meta", []),
    ("meta", "text"),
    ("meta", {"a": str}),
    ("meta", {"a": float("inf")}),
    ("meta", {"a": "\x00"}),
    ("parent_id", 0),
    ("parent_id", 2**63),
    ("parent_id", "1"),
    ("trace", ""),
    ("trace", 5),
]


@pytest.mark.parametrize(("option", "value"), WRONG, ids=lambda part: ascii(part)[:40])
async def test_a_wrong_option_is_named(
    client: holdfast.Client, db: ThrowawayDatabase, option: str, value: Any
) -> None:
    """The error carries the option, is short, and nothing was enqueued; one or many makes no difference."""
    given: Any = {option: value}
    with pytest.raises(holdfast.OptionInvalid) as one:
        await client.enqueue(greet.job(), **given)
    assert one.value.option == option
    assert str(one.value).startswith(f"{option} is ")
    assert len(str(one.value)) < 250
    with pytest.raises(holdfast.OptionInvalid, match=f"^{option} is "):
        await client.enqueue_many([greet.job()], **given)
    assert await db.value("select count(*) from holdfast.jobs") == 0


@pytest.mark.parametrize("kind", ["k" * 201, "a\x00b", "\ud800", 5], ids=lambda part: ascii(part)[:40])
def test_a_kind_that_no_job_can_have_is_refused_at_once(kind: Any) -> None:
    """When it is registered, not when the first job of it is enqueued."""
    with pytest.raises(holdfast.OptionInvalid, match=r"^kind is "):
        holdfast.App().job(kind=kind)(greet.function)


@pytest.mark.parametrize("register", ["job", "workflow"])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(pair for pair in WRONG if pair[0] in ("queue", "priority", "max_attempts", "timeout", "retry")),
        ("retry", timedelta(seconds=5)),
    ],
    ids=lambda part: ascii(part)[:40],
)
def test_a_policy_that_no_job_can_have_is_refused_at_once(register: str, option: str, value: Any) -> None:
    """Not when the first job is enqueued, or fails."""

    async def chase(run: holdfast.Run) -> None:
        """Nobody runs it here."""

    registry = holdfast.App()
    given: Any = {option: value}
    with pytest.raises(holdfast.OptionInvalid, match=f"^{option} is "):
        getattr(registry, register)(kind="chase", **given)(chase)
    assert not registry.handlers


@pytest.mark.parametrize("also", ["10", (1,), ("",)])
def test_the_versions_that_code_goes_on_with_are_a_tuple_of_texts(also: Any) -> None:
    """One text is not taken for its letters; an empty one stands for runs without a version."""

    async def chase(run: holdfast.Run) -> None:
        """Nobody runs it here."""

    registry = holdfast.App()
    if also == ("",):
        registry.workflow(version="2", also=also)(chase)
        assert set(registry.handlers) == {"chase@2", "chase"}
        return
    with pytest.raises(holdfast.OptionInvalid):
        registry.workflow(version="2", also=also)(chase)


def test_a_version_counts_as_part_of_the_kind() -> None:
    """Together they may not be longer than a kind."""

    async def chase(run: holdfast.Run) -> None:
        """Nobody runs it here."""

    assert len(holdfast.App().workflow(kind="k" * 197, version="v1")(chase).kind) == 200
    with pytest.raises(holdfast.OptionInvalid, match=r"^kind is .*201 characters"):
        holdfast.App().workflow(kind="k" * 198, version="v1")(chase)


@pytest.mark.parametrize("name", ["artifacts", "secrets"])
def test_a_text_is_no_list_of_its_letters(name: str) -> None:
    """Whoever forgets the brackets is told so."""
    given: Any = {name: "out"}
    with pytest.raises(holdfast.ArgumentsInvalid, match=rf"Expected `array`, got `str`.*{name}"):
        holdfast.command("make", **given)


async def test_an_unknown_option_is_named_with_those_there_are(client: holdfast.Client) -> None:
    """A slip of the pen is answered with the list."""
    given: Any = {"prio": 1}
    with pytest.raises(holdfast.OptionInvalid, match=r"prio is 1: there is no such option here; .*priority"):
        await client.enqueue(greet.job(), **given)
    with pytest.raises(holdfast.OptionInvalid, match=r"prio is 1: .* there are .*stall_limit"):
        app.schedule("nightly", greet.job(), cron="@daily", **given)


async def test_run_at_and_delay_exclude_each_other(client: holdfast.Client) -> None:
    """Two answers to the question when are one too many."""
    with pytest.raises(holdfast.OptionInvalid, match="either run_at or delay"):
        await client.enqueue(greet.job(), run_at=datetime.now(UTC), delay=1)


async def test_too_much_meta_is_refused_with_its_size(client: holdfast.Client) -> None:
    """64 KiB of meta data is the most."""
    with pytest.raises(holdfast.PayloadTooLarge, match=r"meta: 70,\d+ bytes where 65,536 are allowed"):
        await client.enqueue(greet.job(), meta={"a": "x" * 70_000})


async def test_a_retry_policy_that_is_code_cannot_travel(client: holdfast.Client) -> None:
    """A policy of one's own belongs to the kind; a single job cannot carry it, and the error says so."""
    with pytest.raises(holdfast.InputInvalid, match=r"(?i)custom"):
        await client.enqueue(greet.job(), retry=holdfast.Custom(lambda _: timedelta(1)))


async def test_a_time_in_any_zone_is_the_same_moment(client: holdfast.Client, db: ThrowawayDatabase) -> None:
    """Zones and both passes of a repeated hour end up as the right moment."""
    berlin = ZoneInfo("Europe/Berlin")
    moments = [
        datetime(2031, 7, 1, 12, tzinfo=berlin),
        datetime(2031, 10, 26, 2, 30, tzinfo=berlin),
        datetime(2031, 10, 26, 2, 30, tzinfo=berlin, fold=1),
        datetime(2031, 7, 1, 12, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=5, minutes=53, seconds=28))),
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    ]
    for moment in moments:
        await client.enqueue(greet.job(), run_at=moment)
    rows = await db.fetch("select run_at, state from holdfast.live_jobs order by job_id")
    assert rows == [(moment.astimezone(UTC), "scheduled") for moment in moments]


async def test_a_time_that_has_passed_means_now(client: holdfast.Client, db: ThrowawayDatabase) -> None:
    """A job due in the past, or without delay, may be claimed at once."""
    await client.enqueue(greet.job(), run_at=datetime(1, 1, 1, tzinfo=UTC))
    await client.enqueue(greet.job(), delay=0)
    assert await db.fetch("select distinct state from holdfast.live_jobs") == [("available",)]


@pytest.mark.parametrize("delay", [90, 90.0, timedelta(minutes=1, seconds=30)])
async def test_a_delay_counts_from_the_databases_now(
    client: holdfast.Client, db: ThrowawayDatabase, delay: Any
) -> None:
    """Seconds and timedeltas mean the same, and the clock of this machine plays no part."""
    await client.enqueue(greet.job(), delay=delay)
    await client.enqueue_many([greet.job()] * 500, delay=delay)
    waits = "select distinct run_at - created_at from holdfast.jobs join holdfast.live_jobs on job_id = id"
    assert await db.fetch(waits) == [(timedelta(seconds=90),)]


async def test_what_is_not_given_comes_from_the_kind(client: holdfast.Client, db: ThrowawayDatabase) -> None:
    """The kind's policy holds, option by option, until the enqueue says otherwise."""
    own = holdfast.App()

    @own.job(queue="mail", priority=2, max_attempts=9, timeout=7)
    async def send() -> None:
        """Nobody runs it here."""

    await client.enqueue(send.job())
    await client.enqueue(send.job(), priority=0)
    await client.enqueue(send.job(), queue="post", timeout=timedelta(hours=1), max_attempts=1)
    await client.enqueue_many([send.job()] * 500)
    rows = await db.fetch("select queue, priority, max_attempts, timeout from holdfast.jobs order by id")
    assert rows[:3] == [("mail", 2, 9, 7.0), ("mail", 0, 9, 7.0), ("post", 2, 1, 3600.0)]
    assert set(rows[3:]) == {("mail", 2, 9, 7.0)}

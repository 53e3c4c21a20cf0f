"""What may be an argument: checked at enqueue, refused with its name, given back as it was."""

import dataclasses
import enum
import json
import math
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase

app = holdfast.App()


class Colour(enum.Enum):
    """An enum by value."""

    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Parcel:
    """A dataclass that holds another kind of value."""

    weight: Decimal
    colour: Colour


class Sender(msgspec.Struct):
    """A Struct."""

    name: str
    since: date


class Order(pydantic.BaseModel):
    """A pydantic model that holds models."""

    id: uuid.UUID
    placed_at: datetime
    lines: list["Line"] = []


class Line(pydantic.BaseModel):
    """Part of a pydantic model."""

    count: int = pydantic.Field(gt=0)


@app.job
async def ship(
    parcel: Parcel, sender: Sender, order: Order, when: datetime, patience: timedelta, colours: set[Colour]
) -> list[Any]:
    """Say what came through."""
    assert isinstance(order.lines[0], Line)
    return [parcel, sender, order, when, patience, sorted(colour.value for colour in colours)]


@app.job
async def weigh(grams: list[float]) -> None:
    """Nobody runs it here."""


@app.job
async def greet(name: str, times: int = 1, extra: Any = None) -> None:
    """Nobody runs it here."""


def nested(depth: int) -> Any:
    """A list in a list in a list."""
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "wrong type": ((5,), {}, r"Expected `str`, got `int` - at `\$\.name`"),
    "missing": ((), {}, r"missing a required argument: 'name'"),
    "extra by name": (("Ada",), {"age": 3}, r"unexpected keyword argument 'age'"),
    "extra by place": (("Ada", 1, 2, 3), {}, r"too many positional arguments"),
    "twice": (("Ada",), {"name": "Bo"}, r"multiple values for argument 'name'"),
    "NUL": (("A\x00da",), {}, r"holds a NUL character"),
    "NUL in a key": (("Ada",), {"extra": {"\x00": 1}}, r"holds a NUL character"),
    "half a surrogate pair": (("\ud83d",), {}, r"half of a surrogate pair"),
    "NaN": (("Ada",), {"extra": math.nan}, r"holds the number nan"),
    "NaN far inside": (("Ada",), {"extra": {"a": [None, {"b": (1.0, math.nan)}]}}, r"holds the number nan"),
    "infinity": (("Ada",), {"extra": [-math.inf]}, r"holds the number -inf"),
    "a number of 5000 digits": (("Ada",), {"extra": 10**5000}, r"an endless integer"),
    "too deep": (("Ada",), {"extra": nested(201)}, r"nested deeper than 200 levels"),
    "very much too deep": (("Ada",), {"extra": nested(100_000)}, r"nested deeper than 200 levels"),
    "no data at all": (("Ada",), {"extra": object()}, r"type object cannot be turned into JSON"),
    "a function": (("Ada",), {"extra": nested}, r"type function cannot be turned into JSON"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_argument_that_cannot_be_is_refused_with_its_reason(case: str) -> None:
    """The request is not even made: the error names the kind and what is wrong."""
    args, kwargs, message = REFUSED[case]
    with pytest.raises(holdfast.ArgumentsInvalid, match=message) as refused:
        greet.job(*args, **kwargs)
    assert refused.value.kind == "greet"
    assert "greet" in str(refused.value)


def test_a_payload_of_ten_megabytes_is_refused_with_its_size() -> None:
    """The limit and the way around it are in the message."""
    with pytest.raises(
        holdfast.PayloadTooLarge, match=r"10,000,\d+ bytes where 1,048,576 are allowed; store it"
    ):
        greet.job("x" * 10_000_000)
    greet.job("ü" * 500_000)
    with pytest.raises(holdfast.PayloadTooLarge):
        greet.job("ü" * 525_000)


@pytest.mark.parametrize("value", ["x" * 2_000_000, object()])
def test_a_wrong_name_is_what_is_wrong_whatever_its_value(value: object) -> None:
    """It would not help to make the value fit."""
    with pytest.raises(holdfast.ArgumentsInvalid, match="unexpected keyword argument 'wrong'"):
        greet.job("name", wrong=value)


def test_an_argument_may_have_any_name() -> None:
    """One called self is refused or taken like every other, and ends no pipe of JSON."""
    with pytest.raises(holdfast.ArgumentsInvalid, match="unexpected keyword argument 'self'"):
        app.request("greet", {"name": "Ada", "self": 1})
    own = holdfast.App()

    @own.job
    def portray(self: str) -> str:
        return self

    @own.workflow
    async def exhibit(_run: holdfast.Run, self: str) -> str:
        return self

    assert portray.job(self="Ada").args == exhibit.job(self="Ada").args == '{"self":"Ada"}'
    assert portray(self="Ada") == "Ada"


TAKEN: dict[str, Any] = {
    "nothing": None,
    "text that looks like an escape": "\\u0000 \\x00 null NaN",
    "any language": "ünï 🐙 \u2028 \ufeff",
    "large integers": [2**53 + 1, -(2**63), 2**64 - 1],
    "floats": [0.1, -1e-300, 123456.0],
    "nulls": {"a": [None, None], "null": None},
    "empty things": [{}, [], ""],
    "as deep as may be": nested(199),
    "wide": list(range(5000)),
}


@pytest.mark.parametrize("case", TAKEN)
async def test_data_comes_back_from_the_database_as_it_was(
    client: holdfast.Client, db: ThrowawayDatabase, case: str
) -> None:
    """JSON that is accepted is stored without loss."""
    handle = await client.enqueue(greet.job("Ada", extra=TAKEN[case]))
    stored = await db.value("select args::text from holdfast.jobs where id = $1", handle.id)
    assert json.loads(stored)["extra"] == TAKEN[case]


async def test_a_large_float_is_a_float_where_the_handler_says_so(
    client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """PostgreSQL writes it without an exponent; the handler's type brings it back."""
    large = [1.5e300, -1e22, 5e-324]
    await client.enqueue(weigh.job(large))
    stored = await db.value("select args::text from holdfast.jobs")
    assert weigh.signature.decode(stored) == {"grams": large}


async def test_typed_arguments_reach_the_handler_as_what_they_were(
    client: holdfast.Client, work: Any
) -> None:
    """Dataclasses, Structs, pydantic models, enums, times and decimals make the round trip."""
    await work(app)
    order = Order(
        id=uuid.uuid4(), placed_at=datetime(2031, 1, 2, 3, 4, 5, 678, tzinfo=UTC), lines=[Line(count=2)]
    )
    handle = await client.enqueue(
        ship.job(
            Parcel(Decimal("1.10"), Colour.RED),
            Sender("Ada", date(1815, 12, 10)),
            order=order,
            when=datetime(2031, 3, 30, 2, 30, tzinfo=UTC),
            patience=timedelta(days=1, microseconds=5),
            colours={Colour.RED, Colour.BLUE},
        )
    )
    assert await client.wait(handle.id, timeout=20) == [
        {"weight": "1.10", "colour": "red"},
        {"name": "Ada", "since": "1815-12-10"},
        json.loads(order.model_dump_json()),
        "2031-03-30T02:30:00Z",
        "P1DT0.000005S",
        ["blue", "red"],
    ]


def test_what_a_model_forbids_is_refused_at_enqueue() -> None:
    """A pydantic model is validated by its own rules, and the message names the field."""
    order = Order.model_construct(
        id=uuid.uuid4(), placed_at=datetime.now(UTC), lines=[Line.model_construct(count=0)]
    )
    with pytest.raises(holdfast.ArgumentsInvalid, match=r"(?s)lines\.0\.count.*greater than 0"):
        ship.job(
            Parcel(Decimal(1), Colour.RED),
            Sender("A", date(2000, 1, 1)),
            order,
            datetime.now(UTC),
            timedelta(1),
            set(),
        )


@pytest.mark.parametrize("thing", [greet, "greet", None, {"kind": "greet"}])
async def test_what_is_no_request_is_refused(client: holdfast.Client, thing: Any) -> None:
    """A handler without `.job(...)`, a name or a dictionary is answered with what to give."""
    with pytest.raises(
        holdfast.OptionInvalid, match=r"request is .*: give what the handler's \.job\(\.\.\.\) returns"
    ):
        await client.enqueue(thing)
    with pytest.raises(holdfast.OptionInvalid, match=r"request is"):
        await client.enqueue_many([greet.job("Ada"), thing])

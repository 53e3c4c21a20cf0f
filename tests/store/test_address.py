"""What is no address is told in our words, before a driver stumbles over it."""

from typing import Any

import pytest

from holdfast import Client, SyncClient
from holdfast.errors import DatabaseUnavailable, HoldfastError, SettingInvalid
from holdfast.store.address import checked_address, shown_address


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://",
        "postgres:///name?host=/run/postgresql",
        "postgresql://postgres:@/postgres?host=/tmp/x",
        "postgresql://u:p%40ss@host:5432/name",
        "postgresql://u@[::1]:5432/name",
        "postgresql://u@one:5432,two:5433/name?target_session_attrs=any",
    ],
)
def test_addresses_of_all_forms_are_taken(address: str) -> None:
    """Sockets, several hosts, IPv6 and leftovers to the defaults of PostgreSQL are addresses."""
    assert checked_address(address) == address


@pytest.mark.parametrize("client", [Client, SyncClient])
@pytest.mark.parametrize(
    "address",
    [
        None,
        "",
        "shop",
        "mysql://u@h/x",
        "postgresql://u@h:port/x",
        "postgresql://u:se/cret@h/x",
        "postgres://[x",
        "postgresql://u@h:0/x",
        "postgresql://u@one:1,two:65536/x",
    ],
)
def test_what_is_no_address_is_refused_without_its_password(client: Any, address: Any) -> None:
    """Both clients say so when they are made; an environment variable that is not set is the usual cause."""
    with pytest.raises(SettingInvalid, match="the address of the database is not usable") as caught:
        client(address)
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://", "postgresql://"),
        ("postgresql://u:p%40ss@one:1,[::1]:2/name", "postgresql://u@one:1,[::1]:2/name"),
        ("postgres://:secret@h", "postgres://h"),
        ("postgresql:///name?host=/run/x&password=secret", "postgresql:///name?host=/run/x"),
        ("postgresql://h/name?sslpassword=secret&user=u", "postgresql://h/name?user=u"),
        ("postgresql://u:sec@ret@host:5432/x", "postgresql://u@host:5432/x"),
        ("postgresql://u:sec:r%40et@host:5432/x", "postgresql://u@host:5432/x"),
        ("postgresql://u:sec/ret@host/x", "***"),
        ("postgresql://u:sec?ret@host/x", "***"),
        ("postgresql://u:sec#ret@host/x", "***"),
        ("postgresql://u:12/ret@host/x", "***"),
        ("postgresql://u:12?ret@host/x", "***"),
    ],
)
def test_an_address_is_shown_without_what_is_secret(address: str, shown: str) -> None:
    """User, hosts and name remain; passwords go, wherever they stand."""
    assert shown_address(address) == shown


@pytest.mark.parametrize("place", ["127.0.0.1:1/name", "/name?host=/nowhere/at/all"])
async def test_a_server_that_is_not_there_is_named_without_its_password(place: str) -> None:
    """A missing socket or a closed port alone would not tell which of several settings is wrong."""
    given = f"postgresql://u:secret@{place}"
    with pytest.raises(DatabaseUnavailable) as caught:
        async with Client(given):
            raise AssertionError
    assert f"cannot be reached at {shown_address(given)}: " in str(caught.value)
    assert "secret" not in str(caught.value)
    assert ("or the `holdfast up` that it belongs to?" in str(caught.value)) == place.startswith("/")


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("postgresql://u:secret@a..b/x", "label"),
        ("postgresql://u:secret@127.0.0.1:1/x?sslmode=bogus", "`sslmode` parameter must be one of: disable"),
        ("postgresql://u:secret@127.0.0.1:1/x?target_session_attrs=bogus", "target_session_attrs"),
    ],
)
async def test_what_a_driver_finds_in_an_address_is_told_as_an_error_in_a_setting(
    address: str, problem: str
) -> None:
    """Whoever waits for a database that is away must not wait for this one."""
    with pytest.raises(
        SettingInvalid, match=f"the address of the database is not usable: .*{problem}"
    ) as caught:
        async with Client(address):
            raise AssertionError
    assert caught.value.setting == "database_url"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    ["postgresql://a..b/x", "postgresql://127.0.0.1:1/x?sslmode=bogus", "postgresql://127.0.0.1:1/x?odd=1"],
)
def test_the_sync_client_does_not_come_by_an_address_that_is_none(address: str) -> None:
    """libpq says in its own words what it finds; it is one of Holdfast's errors."""
    with pytest.raises(HoldfastError), SyncClient(address):
        raise AssertionError

"""What is no address is told in our words, before a driver stumbles over it."""

from typing import Any

import pytest

from holdfast import Client, SyncClient
from holdfast.errors import SettingInvalid
from holdfast.store.address import checked_address


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
    ],
)
def test_what_is_no_address_is_refused_without_its_password(client: Any, address: Any) -> None:
    """Both clients say so when they are made; an environment variable that is not set is the usual cause."""
    with pytest.raises(SettingInvalid, match="the address of the database is not usable") as caught:
        client(address)
    assert "cret" not in str(caught.value)

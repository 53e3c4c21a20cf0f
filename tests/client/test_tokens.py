"""Tokens: made once, kept as a hash, revoked for good, audited."""

from datetime import datetime

import pytest

from holdfast.client.operator import Operator
from holdfast.client.token_operator import token_hash
from holdfast.errors import OptionInvalid, TokenNotFound, TokenTaken
from holdfast.model.token import Role
from holdfast.store import tokens
from holdfast.store.addressed import AddressedDatabase
from holdfast.testing import ThrowawayDatabase


async def test_a_token_is_known_by_its_hash_alone(db: ThrowawayDatabase, operator: Operator) -> None:
    """Its text is nowhere in the database, and finds it all the same."""
    made = await operator.tokens.create("ci", Role.PRODUCER)
    [found] = await db.database.run(tokens.use_tokens([token_hash(made.text)]))
    assert found is not None
    assert (found.name, found.role, found.created_by) == ("ci", Role.PRODUCER, "alice")
    stored = await db.value(
        "select to_jsonb(t)::text || (select string_agg(to_jsonb(a)::text, '') "
        "from holdfast.audit_log a) from holdfast.tokens t"
    )
    assert made.text not in stored
    assert made.text.removeprefix("holdfast_") not in stored


async def test_another_text_finds_nothing(db: ThrowawayDatabase, operator: Operator) -> None:
    """One character off is as far off as any."""
    made = await operator.tokens.create("ci", Role.PRODUCER)
    assert await db.database.run(tokens.use_tokens([token_hash(made.text + "x")])) == [None]


async def test_a_revoked_token_is_good_for_nothing(db: ThrowawayDatabase, operator: Operator) -> None:
    """It ends at once, stays ended when it is revoked again, and sets its name free."""
    made = await operator.tokens.create("ci", Role.PRODUCER)
    await operator.tokens.revoke(made.record.id, "it leaked")
    again = await operator.tokens.revoke(made.record.id)
    assert again.revoked_at is not None
    assert await db.database.run(tokens.use_tokens([token_hash(made.text)])) == [None]
    await operator.tokens.create("ci", Role.PRODUCER)
    acts = [act.action for act in await operator.audit() if act.action.startswith("token.")]
    assert acts == ["token.create", "token.revoke", "token.create"]


async def test_a_revocation_is_audited_with_before_and_after(operator: Operator) -> None:
    """Whose token it was, and that it was good until then."""
    made = await operator.tokens.create("ci", Role.PRODUCER, expires=60)
    revoked = await operator.tokens.revoke(made.record.id, "it leaked")
    [act, _] = await operator.audit()
    before, after = act.detail["before"], act.detail["after"]
    assert revoked.revoked_at is not None
    assert (before["name"], before["role"], before["revoked_at"]) == ("ci", "producer", None)
    assert after == before | {"revoked_at": after["revoked_at"]}
    assert datetime.fromisoformat(after["revoked_at"]) == revoked.revoked_at


async def test_an_expired_token_is_good_for_nothing(db: ThrowawayDatabase, operator: Operator) -> None:
    """The database's clock decides."""
    made = await operator.tokens.create("ci", Role.PRODUCER, expires=60)
    await db.fetch("update holdfast.tokens set expires_at = holdfast.now() - interval '1 second'")
    assert await db.database.run(tokens.use_tokens([token_hash(made.text)])) == [None]


async def test_a_name_belongs_to_one_valid_token(operator: Operator) -> None:
    """The name tells in the audit log who acted."""
    await operator.tokens.create("ci", Role.PRODUCER)
    with pytest.raises(TokenTaken, match="revoke it first"):
        await operator.tokens.create("ci", Role.VIEWER)


async def test_only_the_protocol_gives_tokens_to_runners(operator: Operator) -> None:
    """A role that needs a worker or an attempt is refused; so is an unknown token."""
    with pytest.raises(OptionInvalid, match="role is 'runner'"):
        await operator.tokens.create("box", Role.RUNNER)
    with pytest.raises(TokenNotFound):
        await operator.tokens.revoke(7)


async def test_use_is_noted_once_a_minute(db: ThrowawayDatabase, operator: Operator) -> None:
    """The second use within a minute writes nothing."""
    made = await operator.tokens.create("ci", Role.PRODUCER)
    await db.database.run(tokens.use_tokens([token_hash(made.text)]))
    first = await db.fetch("select last_used_at, xmin::text from holdfast.tokens")
    await db.database.run(tokens.use_tokens([token_hash(made.text)]))
    assert first[0][0] is not None
    assert await db.fetch("select last_used_at, xmin::text from holdfast.tokens") == first


async def test_an_act_from_the_network_is_audited_with_its_address(db: ThrowawayDatabase) -> None:
    """Whatever is done in a transaction of a caller has the caller's address, and nothing else has."""
    caller = Operator(AddressedDatabase(db.database, "192.0.2.7"), "ci")
    await caller.queues.pause("mail", create=True)
    made = await caller.tokens.create("more", Role.VIEWER)
    await Operator(db.database, "alice").tokens.revoke(made.record.id)
    acts = await caller.audit()
    assert [(act.action, act.address) for act in acts] == [
        ("token.revoke", None),
        ("token.create", "192.0.2.7"),
        ("queue.pause", "192.0.2.7"),
    ]


async def test_tokens_that_are_shown_at_once_are_told_apart(
    db: ThrowawayDatabase, operator: Operator
) -> None:
    """Each is answered in its place, also one that is shown twice, and one that nobody made."""
    one, other = [await operator.tokens.create(name, Role.PRODUCER) for name in ("one", "other")]
    shown = [other.text, "holdfast_wrong", one.text, other.text]
    found = await db.database.run(tokens.use_tokens([token_hash(text) for text in shown]))
    assert [token and token.name for token in found] == ["other", None, "one", "other"]
    assert await db.value("select count(*) from holdfast.tokens where last_used_at is null") == 0

"""A signature is good for one body, one secret and a few minutes."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.rules.signature import TOLERANCE, is_signed, signature


@given(st.text(min_size=1), st.binary(), st.integers(0, 2**33), st.integers(-300, 300))
def test_what_was_signed_is_known_again(secret: str, body: bytes, at: int, later: int) -> None:
    """Whoever has the secret, the body and about the time agrees."""
    assert is_signed(secret, body, signature(secret, body, at), at + later)


def test_nothing_else_is_taken_for_signed() -> None:
    """Not another body, another secret, another time, an old letter, nor junk."""
    good = signature("s", b"body", 1000)
    assert is_signed("s", b"body", good, 1000)
    assert not is_signed("s", b"bodY", good, 1000)
    assert not is_signed("t", b"body", good, 1000)
    assert not is_signed("s", b"body", good.replace("t=1000", "t=1001"), 1000)
    assert not is_signed("s", b"body", good, 1001 + TOLERANCE)
    for junk in ("", "t=,v1=", "t=1000", good.upper(), "t=1000,v1=ä", good + ",v0=1"):
        assert not is_signed("s", b"body", junk, 1000)

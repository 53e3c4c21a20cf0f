"""No secret leaves a runner, however the output is cut and encoded; nothing else is changed."""

import base64
import json
import time
from itertools import pairwise
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.runners.agent.disguises import disguises
from holdfast.runners.agent.masking import MASK, Masker

SECRET = b"hunter2-is-a-long-password/+="


def masked(pieces: list[bytes], *secrets: bytes) -> bytes:
    """What is shown of a stream that came in these pieces."""
    masker = Masker(secrets)
    return b"".join(masker.feed(piece) for piece in pieces) + masker.end()


def cut(text: bytes, places: list[int]) -> list[bytes]:
    """The text in pieces."""
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


def expected(text: bytes, forms: frozenset[bytes]) -> bytes:
    """The slow way: find every form at every place, and put one mask where they overlap."""
    shown, at, covered = b"", 0, 0
    for place in range(len(text)):
        ends = [place + len(form) for form in forms if text.startswith(form, place)]
        if ends:
            if place >= covered:
                shown += text[max(at, covered) : place] + MASK
                at = place
            covered = max(covered, *ends)
    return shown + text[max(at, covered) :]


# Few letters, so that secrets overlap with themselves, with each other and with the text.
LETTERS = st.text("abA=\n ", min_size=0, max_size=60).map(str.encode)
SECRETS = st.lists(st.text("abA=", min_size=4, max_size=9).map(str.encode), min_size=1, max_size=3)
PLACES = st.lists(st.integers(0, 10_000), max_size=12)


@given(text=LETTERS, secrets=SECRETS, places=PLACES)
@example(text=b"aaaaaaaaaa", secrets=[b"aaaa"], places=[1, 2, 3, 4, 5])
def test_every_cut_of_a_stream_shows_the_same(text: bytes, secrets: list[bytes], places: list[int]) -> None:
    """What is shown is what a look at the whole text at once would show."""
    plain, encoded = disguises(secrets)
    assert masked(cut(text, places), *secrets) == expected(text, plain | encoded)


@given(
    secret=st.binary(min_size=4, max_size=40).filter(
        lambda secret: b"*" not in secret and secret.strip() == secret
    ),
    before=st.binary(max_size=7),
    after=st.binary(max_size=7),
    url_safe=st.booleans(),
    places=PLACES,
)
def test_base64_at_any_alignment_does_not_leak(
    secret: bytes, before: bytes, after: bytes, url_safe: bool, places: list[int]
) -> None:
    """A secret in the midst of data that was encoded as a whole cannot be decoded from what is shown."""
    encode = base64.urlsafe_b64encode if url_safe else base64.standard_b64encode
    output = encode(before + secret + after)
    shown = masked(cut(output, places), secret)
    plain, encoded = disguises([secret])
    assert MASK in shown
    assert shown == expected(output, plain | encoded)
    for form in encoded:
        assert form not in shown


@given(
    secret=st.binary(min_size=30, max_size=200).filter(
        lambda secret: secret.strip() == secret and b"\n" not in secret
    ),
    before=st.integers(0, 150),
    width=st.sampled_from([64, 76]),
    places=PLACES,
)
def test_base64_in_lines_does_not_leak(secret: bytes, before: int, width: int, places: list[int]) -> None:
    """An encoder's line breaks in the midst of a secret do not hide it."""
    line = base64.standard_b64encode(b"x" * before + secret + b"y" * 50)
    output = b"\n".join(line[at : at + width] for at in range(0, len(line), width)) + b"\n"
    shown = masked(cut(output, places), secret).replace(b"\n", b"")
    for form in disguises([secret])[1]:
        assert form not in shown


@pytest.mark.parametrize(
    "form",
    [
        quote(SECRET.decode(), safe=""),
        quote(SECRET.decode(), safe="").replace("%2F", "%2f").replace("%2B", "%2b").replace("%3D", "%3d"),
        quote(SECRET.decode()),
        quote(base64.b64encode(SECRET).decode(), safe=""),
        json.dumps('quo"te\\and\nline')[1:-1],
    ],
)
def test_other_disguises_are_seen_through(form: str) -> None:
    """A secret in an address or in JSON is masked as well."""
    assert masked([b"<", form.encode(), b">"], SECRET, b'quo"te\\and\nline') == b"<***>"


def test_text_without_secrets_passes_at_once() -> None:
    """Nothing is held back and nothing is changed where no secret can begin."""
    masker = Masker([SECRET])
    assert masker.feed(b"all is well\n") == b"all is well\n"


def test_the_beginning_of_a_secret_waits_for_the_rest() -> None:
    """Half a secret at the end of a piece is neither shown nor lost."""
    masker = Masker([SECRET])
    assert masker.feed(b"key: hunter2-") == b"key: "
    assert masker.feed(b"3 is none\n") == b"hunter2-3 is none\n"


def test_each_line_of_a_key_is_a_secret() -> None:
    """A program that indents a key file line by line shows none of it."""
    key = b"-----BEGIN KEY-----\nMIIBVgIBADANBgkqhkiG\n9w0BAQEFAASCAUAwggE8\n-----END KEY-----\n"
    shown = masked([b"  " + line + b"\n" for line in key.splitlines()], key)
    assert shown == b"  ***\n" * 4


def test_short_secrets_are_left_alone() -> None:
    """A secret of three letters would blacken half of all words."""
    assert masked([b"the cat sat"], b"cat") == b"the cat sat"


def test_masking_keeps_pace_with_a_fast_program() -> None:
    """Twenty secrets of forty bytes are looked for at 5 MB/s at least, so that masking is not the bound."""
    secrets = [base64.b64encode(bytes([number]) * 30) for number in range(20)]
    masker = Masker(secrets)
    piece = b"an ordinary line of a build, about as long as they are\n" * 1200
    # Its own time: what else goes on on this machine is not its affair.
    began = time.process_time()
    for _ in range(16):
        assert masker.feed(piece)
    assert 16 * len(piece) / (time.process_time() - began) > 5_000_000

"""The forms under which a secret may show up in the output of a program."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

# Shorter secrets would blacken every other word, and say nothing that could be kept secret.
LEAST_BYTES = 4
# A line of a longer secret, such as a key in a file, is a secret as well if it is this long.
LEAST_LINE = 8


def disguises(secrets: Iterable[bytes]) -> tuple[frozenset[bytes], frozenset[bytes]]:
    """Return every plain form and every base64 form of the *secrets* that are long enough."""
    plain: set[bytes] = set()
    encoded: set[bytes] = set()
    for secret in secrets:
        for part in _parts(secret):
            in_base64 = _base64(part)
            plain |= _plain(part) | {_quoted(form) for form in in_base64}
            encoded |= in_base64
    return frozenset(plain), frozenset(encoded)


def _parts(secret: bytes) -> set[bytes]:
    """Return the secret as it is, without the space around it, and each of its longer lines."""
    lines = {line.strip() for line in secret.splitlines() if len(line.strip()) >= LEAST_LINE}
    return {part for part in {secret, secret.strip()} | lines if len(part) >= LEAST_BYTES}


def _plain(part: bytes) -> set[bytes]:
    forms = {part}
    for quoted in (quote(part, safe=""), quote(part), quote_plus(part)):
        forms.add(quoted.encode())
        # Some programs write %2f where others write %2F.
        forms.add(_lower_escapes(quoted).encode())
    text = part.decode("utf-8", "surrogateescape")
    for ascii_only in (True, False):
        written = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        forms.add(written.encode("utf-8", "surrogateescape"))
    return forms


def _quoted(form: bytes) -> bytes:
    """Return base64 as it stands in an address."""
    return quote(form, safe="").encode()


def _lower_escapes(quoted: str) -> str:
    head, *escapes = quoted.split("%")
    return head + "".join(f"%{one[:2].lower()}{one[2:]}" for one in escapes)


def _base64(part: bytes) -> set[bytes]:
    """Return what base64 makes of *part* wherever it stands in the data that was encoded.

    Three bytes become four characters, so there are three ways to stand; the characters at the edges that
    also hold bits of a neighbour are left out, for nobody can know them.
    """
    forms: set[bytes] = set()
    for encode in (base64.standard_b64encode, base64.urlsafe_b64encode):
        whole = encode(part)
        forms |= {whole, whole.rstrip(b"=")}
        for before in range(3):
            characters = encode(bytes(before) + part)
            first = (before * 8 + 5) // 6
            last = (before + len(part)) * 8 // 6
            forms.add(characters[first:last])
    return forms

"""Signs what is delivered, so that its receiver knows who sent it, and when."""

from __future__ import annotations

import hashlib
import hmac

# A signature that is older or newer may be a recording; in seconds.
TOLERANCE = 300.0


def signature(secret: str, body: bytes, at: int) -> str:
    """Return the signature of *body*, sent at *at* (seconds of the epoch), as its header has it."""
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def is_signed(secret: str, body: bytes, header: str, now: float, tolerance: float = TOLERANCE) -> bool:
    """Read whether *header* is a signature of *body* that was made within *tolerance* seconds of *now*."""
    parts = dict(part.split("=", 1) for part in header.split(",") if "=" in part)
    moment = parts.get("t", "")
    if not (moment.isascii() and moment.isdigit() and len(moment) < 15):
        return False
    expected = signature(secret, body, int(moment))
    return hmac.compare_digest(expected.encode(), header.encode()) and abs(now - int(moment)) <= tolerance

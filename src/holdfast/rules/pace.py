"""How often somebody may do something: a bucket that fills at a steady rate."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """At most *burst* at once, and *rate* a second in the long run."""

    rate: float
    burst: float


@dataclass(frozen=True, slots=True)
class Bucket:
    """What is left of a pace as of *at*, in seconds of whatever clock is used."""

    left: float
    at: float


def full(pace: Pace, now: float) -> Bucket:
    """Return the bucket of somebody who was not seen before."""
    return Bucket(pace.burst, now)


def filled(bucket: Bucket, pace: Pace, now: float) -> Bucket:
    """Return the bucket as it is *now*."""
    return Bucket(min(pace.burst, bucket.left + max(0.0, now - bucket.at) * pace.rate), now)


def taken(bucket: Bucket, pace: Pace, now: float) -> Bucket | None:
    """Return the bucket after one more; None where there is none left."""
    present = filled(bucket, pace, now)
    return Bucket(present.left - 1, now) if present.left >= 1 else None


def patience(bucket: Bucket, pace: Pace, now: float) -> float:
    """Return in how many seconds one more is allowed."""
    return max(0.0, (1 - filled(bucket, pace, now).left) / pace.rate)

"""Deliveries and their endpoints as they travel over HTTP."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.client.wire.shape import Why
from holdfast.model.delivery import ENDS, DeliveryEvent, DeliveryRecord

MOST_NAMED = 100

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Names = Annotated[tuple[Name, ...], msgspec.Meta(max_length=MOST_NAMED)]


class DeliveryPage(msgspec.Struct, frozen=True):
    """Deliveries, newest first; *next* is *before* of the next page, null on the last one."""

    deliveries: list[DeliveryRecord]
    next: int | None


class Carried(msgspec.Struct, frozen=True):
    """The job that carries a delivery."""

    job_id: int


class EndpointOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who is to be told at *url* of *events*, in *queues* and of *kinds*: of all where there are none."""

    name: Name
    url: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
    events: Annotated[tuple[DeliveryEvent, ...], msgspec.Meta(min_length=1, max_length=MOST_NAMED)] = ENDS
    queues: Names = ()
    kinds: Names = ()
    reason: Why = None


class EndpointAdded(msgspec.Struct, frozen=True):
    """An endpoint is told from now on; its *secret*, which signs, is not shown again."""

    name: str
    secret: str


class EndpointRemoval(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which endpoint is to be told nothing more."""

    name: Name
    reason: Why = None


class EndpointRemoved(msgspec.Struct, frozen=True):
    """The endpoint is told nothing more."""

    name: str

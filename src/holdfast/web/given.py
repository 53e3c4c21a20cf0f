"""What a route may be given, by its name: ``backing``, ``gate``, ``caller``, ``operator``."""

from __future__ import annotations

from typing import Any, TypeAlias

from litestar import Request
from litestar.di import NamedDependency, Provide

from holdfast.client.operator import Operator
from holdfast.model.token import Caller
from holdfast.web.backing import Backing
from holdfast.web.gate import Gate

AnyRequest: TypeAlias = Request[Any, Any, Any]
GivenBacking: TypeAlias = NamedDependency[Backing]
GivenGate: TypeAlias = NamedDependency[Gate]
GivenCaller: TypeAlias = NamedDependency[Caller]
GivenOperator: TypeAlias = NamedDependency[Operator]


def providers(backing: Backing, gate: Gate) -> dict[str, Provide]:
    """Return what is given to every route of the service."""
    return {
        "backing": Provide(lambda: backing, sync_to_thread=False),
        "gate": Provide(lambda: gate, sync_to_thread=False),
        "caller": Provide(_caller, sync_to_thread=False),
        "operator": Provide(_operator, sync_to_thread=False),
    }


def _caller(request: AnyRequest) -> Caller:
    caller: Caller = request.auth
    return caller


def _operator(backing: GivenBacking, caller: GivenCaller) -> Operator:
    return backing.operator(caller)

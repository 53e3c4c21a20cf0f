"""Which role has which right."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.token import Right, Role

_VIEWER = frozenset({Right.READ})
_PRODUCER = _VIEWER | {Right.ENQUEUE}
_OPERATOR = _PRODUCER | {Right.OPERATE}

RIGHTS: Mapping[Role, frozenset[Right]] = {
    Role.VIEWER: _VIEWER,
    Role.PRODUCER: _PRODUCER,
    Role.OPERATOR: _OPERATOR,
    Role.ADMIN: _OPERATOR | {Right.ADMINISTER, Right.REGISTER},
    Role.REGISTRAR: frozenset({Right.REGISTER}),
    Role.RUNNER: frozenset({Right.REGISTER, Right.RUN, Right.REPORT}),
    Role.ASSIGNMENT: frozenset({Right.REPORT}),
}


def allows(role: Role, right: Right) -> bool:
    """Read whether *role* has *right*."""
    return right in RIGHTS[role]

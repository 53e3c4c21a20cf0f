"""What the service refuses, and what it could not deliver."""

from __future__ import annotations

from holdfast.errors.root import HoldfastError

_SEND = "send `Authorization: Bearer` with a token of `holdfast tokens create`"
_SET = "set HOLDFAST_TOKEN to one of `holdfast tokens create NAME --role {role}`"


class EndpointNotFound(HoldfastError):
    """No endpoint for deliveries has that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"endpoint {name!r} is unknown: see `holdfast deliveries endpoints`")
        self.name = name


class EndpointTaken(HoldfastError):
    """Another endpoint for deliveries has that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is an endpoint {name!r}: remove it first, or choose another name")
        self.name = name


class DeliveryNotFound(HoldfastError):
    """No delivery has that id, or it was pruned."""

    def __init__(self, delivery_id: int) -> None:
        super().__init__(f"delivery {delivery_id} does not exist (it may have been pruned)")
        self.delivery_id = delivery_id


class DeliveryFailed(HoldfastError):
    """A delivery was not taken by its endpoint; it is tried again."""

    def __init__(self, delivery_id: int, endpoint: str, problem: str) -> None:
        super().__init__(f"delivery {delivery_id} to {endpoint!r} failed: {problem}")
        self.delivery_id, self.endpoint, self.problem = delivery_id, endpoint, problem


class TokenNotFound(HoldfastError):
    """No token has that id."""

    def __init__(self, token_id: int) -> None:
        super().__init__(f"token {token_id} is unknown: see `holdfast tokens list`")
        self.token_id = token_id


class TokenTaken(HoldfastError):
    """A valid token has that name, which has to tell in the audit log who acted."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a valid token is named {name!r}: revoke it first, or choose another name")
        self.name = name


class TokenInvalid(HoldfastError):
    """A request shows no token, or one that was never made, is revoked or has expired."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}: {_SEND}")


def token_remedied(refusal: str, role: str = "ROLE") -> str:
    """Return a service's words about a token with what somebody at a command line does about it."""
    return refusal.replace(_SEND, _SET.format(role=role))


class AccessDenied(HoldfastError):
    """The token's role does not allow the request."""

    def __init__(self, role: str, right: str) -> None:
        super().__init__(f"a token of role {role} may not do this: it takes one with the right to {right}")
        self.role, self.right = role, right


class RequestsTooMany(HoldfastError):
    """Somebody asks more often than they may; *retry_after* is in seconds."""

    def __init__(self, what: str, retry_after: float) -> None:
        super().__init__(f"too many {what}: try again in {retry_after:.1f} s")
        self.retry_after = retry_after


class OriginRefused(HoldfastError):
    """A request that shows no token comes from a page elsewhere, by another name or through a proxy."""

    def __init__(self, header: str, value: str) -> None:
        super().__init__(
            f"{header} {value[:100]!r} is not this service: without tokens it answers only what is asked "
            "here, so make one with `holdfast tokens create`"
        )
        self.header = header


class RequestKeyReused(HoldfastError):
    """An idempotency key came with another request before; nothing was done."""

    def __init__(self, key: str) -> None:
        super().__init__(f"idempotency key {key!r} came with another request before: take a fresh one")
        self.key = key

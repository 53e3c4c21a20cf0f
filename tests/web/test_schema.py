"""The schema is kept: whatever is sent, the answer is one that it documents."""

import asyncio
from typing import Any

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast.model.token import Role
from tests.web.conftest import Serve

EXAMPLES = 12
CHECKS = (
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


def attacked(operation: Any, url: str, token: str) -> None:
    """Send an operation whatever its part of the schema allows, and much that it does not."""
    for mode in schemathesis.GenerationMode:

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        def attack(case: Any) -> None:
            case.call_and_validate(base_url=url, headers={"Authorization": f"Bearer {token}"}, checks=CHECKS)

        attack()


async def test_every_operation_answers_as_documented(serve: Serve) -> None:
    """No 5xx, no undocumented status, no body of another shape, for data that fits and data that does not."""
    service = await serve(rate=1_000_000)
    token, _ = await service.token(Role.ADMIN)
    schema = schemathesis.openapi.from_url(f"{service.url}/schema")
    for found in schema.get_all_operations():
        await asyncio.to_thread(attacked, found.ok(), service.url, token)

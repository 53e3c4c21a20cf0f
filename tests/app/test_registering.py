"""What a function may look like that is registered, and what is refused at once."""

from collections.abc import Callable
from typing import Annotated, Any, Optional

import pytest

import holdfast

SPELLINGS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda wanted: wanted,
    "or None": lambda wanted: wanted | None,
    "None or": lambda wanted: None | wanted,
    "Optional": lambda wanted: Optional[wanted],  # noqa: UP045 - the old spelling is what is tried
    "Annotated": lambda wanted: Annotated[wanted, "of the queue"],
    "Annotated or None": lambda wanted: Annotated[wanted, "of the queue"] | None,
    "Annotated around": lambda wanted: Annotated[wanted | None, "of the queue"],
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_job_is_injected_however_its_type_is_spelled(spelling: str) -> None:
    """It is no argument of an enqueue, and the handler gets it under its name."""

    async def greet(job: Any = None, name: str = "Ada") -> None: ...

    greet.__annotations__["job"] = SPELLINGS[spelling](holdfast.Job)
    handler = holdfast.App().job(greet)
    assert handler.signature.job_parameter == "job"
    assert handler.signature.names == ("name",)
    assert handler.job("Bo").args == '{"name":"Bo"}'


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_run_may_be_spelled_as_a_job_may(spelling: str) -> None:
    """A workflow is not refused because its first parameter says more than `Run`."""

    async def plan(run: Any, amount: int) -> None: ...

    plan.__annotations__["run"] = SPELLINGS[spelling](holdfast.Run)
    workflow = holdfast.App().workflow(plan)
    assert workflow.job(3).args == '{"amount":3}'

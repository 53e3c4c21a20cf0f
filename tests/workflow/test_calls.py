"""Calls of steps, as they are made again and again in a worker that lives long."""

import gc
import weakref
from collections.abc import Callable

from holdfast.workflow.calls import made_call


def made_inside() -> Callable[[], int]:
    """A function as the code of each run makes one."""

    def weigh() -> int:
        return 7

    return weigh


def test_functions_that_runs_make_are_forgotten() -> None:
    """Each run has its own, and a worker that kept them would grow with every run."""
    functions = [made_inside() for _ in range(2000)]
    kept = [weakref.ref(function) for function in functions]
    for function in functions:
        assert made_call(function, (), {}).result("7") == 7
    functions.clear()
    del function
    gc.collect()
    assert not any(one() is not None for one in kept)

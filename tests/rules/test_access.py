"""Rights: a higher role has those of the lower ones, and machines have none of them."""

from itertools import pairwise

from holdfast.model.token import Right, Role
from holdfast.rules.access import RIGHTS, allows


def test_every_role_has_its_rights() -> None:
    """No role is left out, and no right is had by nobody."""
    assert RIGHTS.keys() == set(Role)
    assert set().union(*RIGHTS.values()) == set(Right)


def test_each_higher_role_may_do_what_the_lower_one_may() -> None:
    """viewer < producer < operator < admin, each with something more."""
    ladder = [Role.VIEWER, Role.PRODUCER, Role.OPERATOR, Role.ADMIN]
    assert all(RIGHTS[lower] < RIGHTS[higher] for lower, higher in pairwise(ladder))


def test_machines_see_no_jobs_but_their_own() -> None:
    """A stolen token of a runner reads and enqueues nothing."""
    for role in (Role.REGISTRAR, Role.RUNNER, Role.ASSIGNMENT):
        assert not any(
            allows(role, right) for right in (Right.READ, Right.ENQUEUE, Right.OPERATE, Right.ADMINISTER)
        )

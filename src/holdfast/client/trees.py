"""The tree of a run, put together from its nodes and from why each of them waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast.model.run import Family, RunNode
from holdfast.model.standing import Standing
from holdfast.rules.waiting import why_waiting
from holdfast.store.run_overview import Branching

# The children of a node's families: by its id and theirs.
Members = dict[tuple[int, int], list[RunNode]]


def grown(branchings: Sequence[Branching], standings: Mapping[int, Standing]) -> RunNode:
    """Return the first of *branchings*, which are given parents first, with all others below it."""
    members: Members = {}
    for one in reversed(branchings):
        node = _joined(one.node, members, standings)
        if one.above is None or one.family_id is None:
            return node
        members.setdefault((one.above, one.family_id), []).insert(0, node)
    msg = "a tree has a root"
    raise AssertionError(msg)


def _joined(node: RunNode, members: Members, standings: Mapping[int, Standing]) -> RunNode:
    standing = standings.get(node.run.id)
    return replace(
        node,
        why=None if standing is None else why_waiting(standing),
        families=tuple(_filled(node.run.id, family, members) for family in node.families),
    )


def _filled(run_id: int, family: Family, members: Members) -> Family:
    return replace(family, members=tuple(members.get((run_id, family.id), ())))

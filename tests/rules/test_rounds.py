"""Which queues are passed over: those that were seen empty, and only for a moment."""

from holdfast.rules.rounds import LONGEST, Rounds, turned

QUEUES = ("a", "b", "c", "d")


def rounds(found: set[str], *, full: bool = True) -> Rounds:
    """Rounds after one claim at time 0 that asked all queues."""
    asked = Rounds()
    assert asked.asked(QUEUES, 0.0, every_one=True) == QUEUES
    asked.answered(QUEUES, found, full=full)
    return asked


def test_an_empty_queue_before_the_last_that_gave_is_passed_over() -> None:
    """A claim goes through its queues in order, and so has seen those before the one where it ended."""
    assert rounds({"c"}).asked(QUEUES, 0.1) == ("c", "d")
    assert rounds({"a", "c"}).asked(QUEUES, 0.1) == ("a", "c", "d")


def test_a_queue_that_was_not_reached_is_asked() -> None:
    """What a full claim did not come to may be full as well."""
    assert rounds({"a"}).asked(QUEUES, 0.1) == QUEUES
    assert rounds({"a"}).asked(QUEUES[::-1], 0.1) == QUEUES[::-1]


def test_a_short_claim_has_seen_them_all() -> None:
    """What gave nothing is empty, wherever it stands."""
    assert rounds({"b"}, full=False).asked(QUEUES, 0.1) == ("b",)


def test_no_queue_is_passed_over_for_longer_than_half_a_second() -> None:
    """Every so often, and whenever everything is to be looked at, all are asked."""
    assert rounds({"d"}).asked(QUEUES, LONGEST - 0.01) == ("d",)
    assert rounds({"d"}).asked(QUEUES, LONGEST) == QUEUES
    assert rounds({"d"}).asked(QUEUES, 0.1, every_one=True) == QUEUES


def test_next_is_the_queue_behind_the_last_that_gave() -> None:
    """Whoever stands behind empty queues has no more turns than the others."""
    order: tuple[str, ...] = QUEUES
    served = list[str]()
    for _ in range(6):
        full = next(queue for queue in order if queue in ("a", "d"))
        served.append(full)
        order = turned(order, {full})
    assert served == ["a", "d"] * 3
    assert turned(QUEUES, {"a", "c"}) == ("d", "a", "b", "c")
    assert turned(QUEUES) == ("b", "c", "d", "a")


def test_a_queue_with_a_claim_of_its_own_is_not_passed_over() -> None:
    """The others are asked together when it is the turn of the first of them, and it may be none's yet."""
    assert turned(QUEUES, {"d"}, {"b", "c"}) == ("b", "c", "d", "a")
    assert turned(QUEUES, {"d"}, {"c"}) == ("c", "d", "a", "b")
    assert turned(QUEUES, {"c"}, {"c"}) == ("d", "a", "b", "c")
    assert turned(QUEUES, {"a"}, {"a", "b"}) == ("b", "c", "d", "a")

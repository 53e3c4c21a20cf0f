"""When a worker keeps watch: called often enough, and for as long as there is something to find."""

from holdfast.rules.polling import CALLS, PATIENCE, WITHIN, Polling


def called(times: int, *, over: float) -> Polling:
    """One that was called so many times, evenly within *over* seconds up to 0."""
    polling = Polling()
    for n in range(times):
        polling.call(-over * (times - 1 - n) / times)
    return polling


def test_seldom_called_it_sleeps() -> None:
    """A call now and then is cheaper than looking all the time."""
    assert not called(CALLS - 1, over=WITHIN / 2).look(0.0, found=True)
    assert not called(CALLS, over=WITHIN * 2).look(0.0, found=True)
    assert not Polling().look(0.0, found=True)


def test_often_called_it_keeps_watch() -> None:
    """As many calls as it could look itself begin a watch, even for one that others were quicker than."""
    assert called(CALLS, over=WITHIN).look(0.0, found=True)
    assert called(CALLS, over=WITHIN).look(0.0, found=False)


def test_a_watch_lasts_while_something_is_found() -> None:
    """Each find prolongs it by the patience, and the end of that ends it."""
    polling = called(CALLS, over=WITHIN)
    now = 0.0
    for _ in range(5):
        assert polling.look(now, found=True)
        now += PATIENCE * 0.9
    assert polling.look(now, found=False)
    assert not polling.look(now + PATIENCE * 0.2, found=False)


def test_a_watch_that_ended_begins_only_by_new_calls() -> None:
    """The calls that began one are spent."""
    polling = called(CALLS, over=WITHIN)
    assert polling.look(0.0, found=True)
    assert not polling.look(PATIENCE, found=False)
    assert not polling.look(PATIENCE, found=True)

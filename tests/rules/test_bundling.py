"""Whether claims bundle follows what those before them brought, and what became of that."""

from holdfast.rules.bundling import ENOUGH, FIRST_REST, LONGEST_REST, MANY, WORTH, Bundling


def rest(bundling: Bundling) -> int:
    """How many claims go by until one bundles."""
    return next(n for n in range(2 * LONGEST_REST) if bundling.next_claim(MANY))


def test_few_jobs_are_not_worth_a_bundle() -> None:
    """Neither where few are asked for, nor after two claims that brought few."""
    bundling = Bundling()
    assert not bundling.next_claim(MANY)
    bundling.claimed(MANY, 0)
    assert bundling.next_claim(MANY)
    assert not bundling.next_claim(MANY - 1)
    bundling.claimed(MANY - 1, MANY - 1)
    assert bundling.next_claim(MANY)
    bundling.claimed(0, 0)
    assert not bundling.next_claim(MANY)


def test_the_rest_grows_and_shrinks_with_what_is_parted() -> None:
    """One of eight is still worth it; more are not, and the rest doubles up to its most and halves again."""
    bundling = Bundling()
    rests = list[int]()
    for _ in range(8):
        bundling.claimed(ENOUGH, ENOUGH)
        bundling.parted(ENOUGH // WORTH + 1)
        # The claim that looks back is the first of those that go by.
        rests.append(rest(bundling) - 1)
    assert rests == [FIRST_REST * 2**n for n in range(7)] + [LONGEST_REST]
    for _ in range(2):
        bundling.claimed(ENOUGH, ENOUGH)
        bundling.parted(ENOUGH // WORTH)
        assert rest(bundling) == 0
    bundling.claimed(ENOUGH, ENOUGH)
    bundling.parted(ENOUGH)
    assert rest(bundling) - 1 == LONGEST_REST // 4

"""Items are prepared in another thread, one ahead or as they arrive; nothing else changes."""

import threading

import pytest

from ltls.core.prefetch import arriving, prefetch


@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_all_items_come_in_order(n):
    assert list(prefetch(iter(range(n)))) == list(range(n))


def test_the_next_item_is_prepared_in_another_thread_while_one_is_used():
    prepared, threads = [threading.Event() for _ in range(3)], []

    def items():
        for number, event in enumerate(prepared):
            threads.append(threading.current_thread())
            event.set()
            yield number

    for number in prefetch(items()):
        if number + 1 < len(prepared):
            assert prepared[number + 1].wait(timeout=60)
    assert threading.current_thread() not in threads


def test_no_more_than_one_item_is_prepared():
    begun = []

    def items():
        for number in range(10):
            begun.append(number)
            yield number

    fetched = prefetch(items())
    next(fetched)
    fetched.close()  # waits for the thread
    assert begun in ([0], [0, 1])


def test_an_error_comes_after_the_items_before_it():
    def items():
        yield 1
        raise ValueError("no more")

    fetched = prefetch(items())
    assert next(fetched) == 1
    with pytest.raises(ValueError, match="no more"):
        next(fetched)


def test_the_thread_ends_with_the_loop():
    before = threading.active_count()
    for item in prefetch(iter(range(100))):
        if item == 3:
            break
    assert threading.active_count() == before


@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize("n", [0, 1, 50])
def test_all_items_arrive_in_order(n, limit):
    parts = list(arriving(iter(range(n)), limit))
    assert [item for part in parts for item in part] == list(range(n))
    assert all(1 <= len(part) <= limit for part in parts)


def test_items_that_have_arrived_do_not_wait_for_others():
    more = threading.Event()

    def items():
        yield from (1, 2)
        assert more.wait(timeout=60)
        yield 3
        raise ValueError("no more")

    arrived, found = arriving(items(), 100), []
    while len(found) < 2:
        found += next(arrived)
    more.set()
    assert (found, next(arrived)) == ([1, 2], [3])
    with pytest.raises(ValueError, match="no more"):
        next(arrived)

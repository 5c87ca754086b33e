"""Device time is counted once, however many calls hold the device."""

from contextlib import ExitStack, suppress

import pytest

from gpu_actors.meter import Meter


def test_the_shares_of_calls_at_once_sum_to_the_time_that_the_device_was_held() -> None:
    now = 100.0
    meter = Meter(lambda: now)
    with ExitStack() as first:
        a = first.enter_context(meter.holding())
        now += 4
        with ExitStack() as second:
            b = second.enter_context(meter.holding())
            c = second.enter_context(meter.holding())
            now += 6
        now += 1
    now += 50  # nobody holds it
    with meter.holding() as d:
        now += 3
    assert (a.seconds, b.seconds, c.seconds, d.seconds) == pytest.approx((7, 2, 2, 3))
    assert sum(share.seconds for share in (a, b, c, d)) == pytest.approx(14)


def test_a_call_that_fails_gives_the_device_back() -> None:
    now = 0.0
    meter = Meter(lambda: now)
    with suppress(ZeroDivisionError), meter.holding() as failed:
        now += 2
        raise ZeroDivisionError
    with meter.holding() as share:
        now += 5
    assert (failed.seconds, share.seconds) == (2, 5)

"""What stands between the driver and Ray. Ray itself is not started here."""

import os
import signal

import pytest

from swarm.cluster import interrupts_later


def test_an_interrupt_in_the_middle_comes_at_the_end() -> None:
    before = signal.getsignal(signal.SIGINT)
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_later():  # noqa: PT012 - what is done before it counts
        os.kill(os.getpid(), signal.SIGINT)
        done.append("the rest of the block")
    assert done == ["the rest of the block"]
    assert signal.getsignal(signal.SIGINT) is before
    with interrupts_later():
        done.append("nothing came")
    assert len(done) == 2

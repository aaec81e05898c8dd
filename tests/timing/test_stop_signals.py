"""One press of Ctrl-C counts once, however often it is delivered."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from velodrome.timing.stop_signals import StopSignals, on_stop_signal


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_same_signal_within_a_second_is_a_copy():
    times = [5.0]
    signals = StopSignals(clock=lambda: times[-1])
    counted = []
    for now, number in ((5.0, 2), (5.2, 2), (5.3, 15), (5.9, 2), (5.9, 15), (6.0, 2), (6.9, 2)):
        times.append(now)
        counted.append(signals.counts(number))
    assert counted == [True, False, True, False, False, True, False]


def test_a_copy_that_arrives_after_the_end_does_nothing_and_a_new_signal_what_it_did_before():
    times = [5.0]
    signals = StopSignals(clock=lambda: times[-1])
    assert signals.counts(signal.SIGINT)
    signals.pass_over(signal.SIGINT)
    signals.pass_over(signal.SIGTERM)  # it never arrived: nothing is changed
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    signal.raise_signal(signal.SIGINT)
    times.append(6.5)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_inside_each_kind_of_signal_is_reacted_to_once():
    async def interrupted() -> int:
        reactions: asyncio.Queue[None] = asyncio.Queue()
        with on_stop_signal(lambda: reactions.put_nowait(None)):
            for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
                signal.raise_signal(number)
            await reactions.get()
            await reactions.get()
            await asyncio.sleep(0)
        signal.raise_signal(signal.SIGINT)  # a copy
        return reactions.qsize()

    assert asyncio.run(interrupted()) == 0

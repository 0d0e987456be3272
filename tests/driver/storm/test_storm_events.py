"""Events are a courtesy: what the API server does not take, or has no room for, is not tried again and again."""

import asyncio
import itertools

import pytest

from drawbar.driver.kube import events
from drawbar.fabric import errors
from drawbar.mocks.apiserver import faults

# Why a claim waits, that its attach failed, and when that is rolled back: each on the claim, its pod and the attachment.
TOLD_MAX = 9
# From the allocation on: afterwards there is nothing new to report.
ALL_TOLD_SECONDS = 900
# Longer than the time after which the controller looks at everything again.
SILENT_SECONDS = 400


@pytest.fixture
def down(monkeypatch):
    """Return a function that makes a storm's fabric manager unreachable, for another reason at each try."""

    def go_down(storm):
        tries = itertools.count()

        async def refuse():
            number = next(tries)
            raise errors.Unavailable(f"connection {number} was refused, {number % 2} s after the last one")

        monkeypatch.setattr(storm.fabric, "capabilities", refuse)
        monkeypatch.setattr(storm.fabric, "devices", refuse)
        storm.fabric.console.resync()

    return go_down


@pytest.mark.parametrize(
    "effect",
    [faults.Refusal(code=503), faults.Refusal(code=403), faults.Latency(seconds=20)],
    ids=["unavailable", "refused", "slow"],
)
@pytest.mark.parametrize("room", [events.QUEUE_LIMIT, 2], ids=["with-room", "queue-full"])
def test_events_that_are_not_taken_are_not_repeated_while_nothing_can_be_done(
    in_storm, down, monkeypatch, effect, room
):
    monkeypatch.setattr(events, "QUEUE_LIMIT", room)

    async def steps(storm):
        down(storm)
        await asyncio.sleep(5)
        only = faults.Selection(verb="create", resource="events", user="system:serviceaccount:*")
        fault = storm.server.faults.add(faults.Fault(effect=effect, select=only))
        for number, device in enumerate(storm.devices):
            await storm.allocate(device, storm.nodes[number % 2])
        await asyncio.sleep(ALL_TOLD_SECONDS)
        early = fault.met
        await asyncio.sleep(SILENT_SECONDS)
        assert 0 < early <= TOLD_MAX * len(storm.devices)
        assert fault.met == early

    in_storm(steps)

"""Readings of a fabric are shared, and never older than the question."""

import asyncio

import pytest

from drawbar.driver.controller.fabrics import connection


class Fabric:
    def __init__(self):
        self.begun = 0
        self.first_began = asyncio.Event()
        self.may_end = asyncio.Event()

    async def read(self):
        self.begun += 1
        self.first_began.set()
        await self.may_end.wait()


async def test_those_who_ask_during_a_reading_share_the_next_one():
    fabric = Fabric()
    shared = connection.Readings(fabric.read)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(shared.fresh())
        await fabric.first_began.wait()
        for _ in range(5):
            tasks.create_task(shared.fresh())
        await asyncio.sleep(0)
        fabric.may_end.set()
    assert fabric.begun == 2


async def test_who_asks_afterwards_gets_a_reading_of_his_own():
    fabric = Fabric()
    fabric.may_end.set()
    shared = connection.Readings(fabric.read)
    await shared.fresh()
    await shared.fresh()
    assert fabric.begun == 2


async def test_a_reading_that_fails_answers_no_other():
    tries = []

    async def read():
        tries.append(None)
        await asyncio.sleep(0)
        if len(tries) == 1:
            raise ConnectionError

    shared = connection.Readings(read)
    first, second = asyncio.Task(shared.fresh()), asyncio.Task(shared.fresh())
    with pytest.raises(ConnectionError):
        await first
    await second
    assert len(tries) == 2

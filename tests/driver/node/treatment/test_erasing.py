"""An erase in its thread, as who asks for it sees it."""

import threading

import pytest

from drawbar.driver.node import errors
from drawbar.driver.node.treatment import erasing


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Disk:
    """Erases when it is let."""

    def __init__(self, error=None):
        self.error, self.runs = error, 0
        self.reported, self.let = threading.Event(), threading.Event()

    def __call__(self, report):
        self.runs += 1
        report("half of it")
        self.reported.set()
        assert self.let.wait(120)
        if self.error is not None:
            raise self.error


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def end_erase(clock):
    """Return `end_erase(disk, erasure)`: its state when the erase has ended."""

    def end(disk, erasure):
        disk.let.set()
        for thread in threading.enumerate():
            if thread.name.startswith("erase: "):
                thread.join(20)
        return erasure.state()

    return end


def test_an_erase_is_due_then_runs_and_is_done_once(clock, end_erase):
    erasure, disk = erasing.Erasure(clock), Disk()
    assert erasure.state() == erasing.NotStarted()
    erasure.begin("0000:01:00.0", disk)
    assert disk.reported.wait(120)
    clock.now = 7.0
    assert erasure.state() == erasing.Running(progress="half of it", seconds=7.0)
    erasure.begin("0000:01:00.0", disk)
    assert end_erase(disk, erasure) == erasing.Done()
    erasure.begin("0000:01:00.0", disk)
    assert disk.runs == 1


def test_an_erase_that_fails_is_due_again_later_each_time(clock, end_erase):
    erasure = erasing.Erasure(clock)
    for pause in (5, 10, 20, 40, 80, 160, 300, 300):
        erasure.begin("x", disk := Disk(errors.NotCleaned("it is broken")))
        assert end_erase(disk, erasure) == erasing.Failed(why="it is broken")
        clock.now += pause - 0.1
        assert isinstance(erasure.state(), erasing.Failed)
        clock.now += 0.2
        assert erasure.state() == erasing.NotStarted()


def test_an_unforeseen_error_is_a_failure_with_its_words(clock, end_erase):
    erasure = erasing.Erasure(clock)
    erasure.begin("x", disk := Disk(ZeroDivisionError("once")))
    assert "ZeroDivisionError('once')" in end_erase(disk, erasure).why

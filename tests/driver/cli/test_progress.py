"""Progress of a verb: shown on a terminal, never in a file or a pipe."""

import asyncio
import io
import sys

import pytest
from tests.scenes import waiting

from drawbar.driver.cli import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


async def test_a_terminal_shows_the_activity_after_a_second(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    async with progress.show_activity("reading the cluster"):
        await waiting.eventually(terminal.getvalue)
    assert terminal.getvalue().startswith("reading the cluster ... 1 s\n")


@pytest.mark.parametrize("stderr", [Terminal, io.StringIO], ids=["short work", "long work into a file"])
async def test_nothing_is_shown_for(monkeypatch, stderr):
    errors = stderr()
    monkeypatch.setattr(sys, "stderr", errors)
    async with progress.show_activity("reading the cluster"):
        await asyncio.sleep(0 if stderr is Terminal else progress.PROGRESS_AFTER_SECONDS + 0.1)
    assert errors.getvalue() == ""

"""CEL that is made to harm: it ends itself, and the next expression is evaluated."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from drawbar.driver import evaluation
from drawbar.driver.api import slices

DRIVER = "drawbar.dev"
IS_GPU = f'device.attributes["{DRIVER}"].class == "gpu"'
ENDLESS = f"[{', '.join(['1'] * 3000)}].all(x, 'aaaa'.matches('\\\\pL{{1,200}}'))"


def device(name, kind="gpu"):
    return slices.Device(name=name, attributes={"class": slices.Attribute(string=kind)})


@pytest.fixture
async def process():
    process = evaluation.Process()
    yield process
    await process.aclose()


@pytest.mark.parametrize("kind", [evaluation.Inline, evaluation.Process])
async def test_each_device_has_its_answer_in_order(kind):
    devices = [device(f"d{number}", "gpu" if number % 3 else "nic") for number in range(300)]
    devices[7] = slices.Device(name="bare")
    evaluator = kind()
    try:
        outcome = await evaluator.evaluate(IS_GPU, DRIVER, devices)
        broken = await evaluator.evaluate("device.", DRIVER, ())
        sound = await evaluator.evaluate(IS_GPU, DRIVER, ())
    finally:
        if isinstance(evaluator, evaluation.Process):
            await evaluator.aclose()
    assert outcome.fault == ""
    assert [answer.met for answer in outcome.answers] == [bool(n % 3) and n != 7 for n in range(300)]
    assert "it has no class" in outcome.answers[7].fault
    assert broken.fault
    assert (sound.fault, sound.answers) == ("", ())


async def test_an_endless_expression_is_stopped_and_refused_afterwards(process):
    assert (await process.evaluate(IS_GPU, DRIVER, [device("a")])).answers[0].met
    first = process.pid
    ticks = 0
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(process.evaluate(ENDLESS, DRIVER, [device("a")]))
        while not asked.done():
            # The event loop goes on meanwhile.
            await asyncio.sleep(0.01)
            ticks += 1
    outcome = asked.result()
    assert ticks > 10
    assert outcome.fault == evaluation.TOO_EXPENSIVE
    assert outcome.again_seconds == evaluation.REFUSED_SECONDS
    assert process.pid is None
    # Not tried another time, and in the way of no other expression.
    assert (await process.evaluate(ENDLESS, DRIVER, [device("b")])).fault == evaluation.TOO_EXPENSIVE
    assert process.pid is None
    assert (await process.evaluate(IS_GPU, DRIVER, [device("a")])).answers[0].met
    assert process.pid not in (None, first)


HOSTILE = {
    "nested": "(" * 5000 + "true" + ")" * 5000,
    "nested macros": "[1].map(x, " * 400 + "x" + ")" * 400 + " == []",
    "negated": "!" * 9000 + "true",
    "minus": "-" * 9000 + "1 == 1",
    "memory": f"[{', '.join([chr(39) + 'a' * 60 + chr(39)] * 40)}]"
    + "".join(f".map(x{n}, x{n} + x{n})" for n in range(26))
    + " == []",
    "overflow": "9223372036854775807 + 1 == 1",
    "division": "1 / 0 == 1",
    "pattern": '"a".matches("(((a{1,100}){1,100}){1,100}){1,100}")',
}


async def test_nothing_that_an_expression_can_be_harms_the_next_one(process):
    for expression in HOSTILE.values():
        outcome = await process.evaluate(expression, DRIVER, [device("a")])
        assert outcome.fault or len(outcome.answers) == 1
        assert len(outcome.fault) <= evaluation.FAULT_CHARS
        assert (await process.evaluate(IS_GPU, DRIVER, [device("a")])).answers[0].met


async def test_a_process_that_was_killed_costs_one_answer(process):
    await process.evaluate(IS_GPU, DRIVER, [device("a")])
    os.kill(process.pid, signal.SIGKILL)
    await process.evaluate("true", DRIVER, [device("a")])
    assert (await process.evaluate(IS_GPU, DRIVER, [device("a")])).answers[0].met


async def test_a_cancelled_question_leaves_no_answer_for_the_next(process):
    await process.evaluate(IS_GPU, DRIVER, [device("a")])
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(process.evaluate(ENDLESS, DRIVER, [device("a")]))
        await asyncio.sleep(0)
        asked.cancel()
    assert (await process.evaluate(IS_GPU, DRIVER, [device("a", "nic")])).answers[0].met is False


async def test_only_so_many_refused_expressions_are_remembered(process, monkeypatch):
    monkeypatch.setattr(evaluation, "REFUSED_MAX", 1)
    monkeypatch.setattr(evaluation, "CHUNK_SECONDS", -10.0)
    monkeypatch.setattr(evaluation, "TOTAL_SECONDS", -1.0)
    for expression in (IS_GPU, "true"):
        assert (await process.evaluate(expression, DRIVER, [device("a")])).fault
    monkeypatch.undo()
    assert (await process.evaluate(IS_GPU, DRIVER, [device("a")])).answers[0].met
    assert (await process.evaluate("true", DRIVER, [device("a")])).fault


async def test_a_process_that_cannot_start_is_reported_and_retried(process, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    outcome = await process.evaluate(IS_GPU, DRIVER, [device("a")])
    assert "cannot be evaluated now: No such file" in outcome.fault
    assert outcome.again_seconds == evaluation.FAILED_SECONDS
    monkeypatch.undo()
    assert (await process.evaluate(IS_GPU, DRIVER, [device("a")])).answers[0].met


async def test_a_machine_that_is_too_busy_is_to_blame_itself_and_the_expression_is_tried_again(
    process, monkeypatch
):
    monkeypatch.setattr(evaluation, "PATIENCE_SECONDS", 0.0)
    outcome = await process.evaluate(IS_GPU, DRIVER, [device("a")])
    assert "the machine is too busy" in outcome.fault
    assert (outcome.again_seconds, process.pid) == (evaluation.FAILED_SECONDS, None)
    monkeypatch.undo()
    assert (await process.evaluate(IS_GPU, DRIVER, [device("a")])).answers[0].met


async def test_it_ends_after_a_quiet_time_and_comes_back(process, monkeypatch):
    monkeypatch.setattr(evaluation, "IDLE_SECONDS", 0.01)
    await process.evaluate(IS_GPU, DRIVER, [device("a")])
    child = process._child
    async with asyncio.timeout(120):
        await child.wait()
    assert (await process.evaluate(IS_GPU, DRIVER, [device("a")])).answers[0].met


def test_it_ends_with_its_parent():
    program = (
        "import asyncio, os, signal\n"
        "from drawbar.driver import evaluation\n"
        "async def main():\n"
        "    process = evaluation.Process()\n"
        "    await process.evaluate('true', 'd', ())\n"
        "    print(process.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    stat = Path(f"/proc/{int(printed.stdout)}/stat")
    until = time.monotonic() + 20
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < until
        time.sleep(0.01)

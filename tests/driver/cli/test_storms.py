"""An API server in a storm: each verb ends within its time, in one sentence, and claims nothing that it has not read."""

import time

import pytest

from drawbar.driver import main
from drawbar.mocks.apiserver import faults

READS = faults.Selection(verb="list,watch")
STORMS = {
    "too many requests": faults.Fault(effect=faults.Refusal(code=429, retry_after=1)),
    "internal errors": faults.Fault(effect=faults.Refusal(code=500)),
    "unavailable": faults.Fault(effect=faults.Refusal(code=503)),
    "history gone": faults.Fault(effect=faults.Refusal(code=410), select=READS),
    "connections cut": faults.Fault(effect=faults.Disconnect()),
    "requests hang": faults.Fault(effect=faults.Partition()),
    "answers that never come": faults.Fault(effect=faults.Latency(seconds=600, after=True)),
}
LINES = (
    "status",
    "status -o json",
    "explain pod/train-0",
    "doctor",
    "taint preview device/gpu-1",
    "taint list",
    "taint add rule/new device/gpu-1 --yes",
    "maintenance list",
    "maintenance on device/gpu-1 --yes",
    "maintenance off device/gpu-2 --yes",
    "move default/train --yes",
)
REQUESTS_MAX = 20
"""A verb reads seven kinds at once, and repeats a request over a cut connection once."""
SECONDS_MAX = 25
"""A request alone may take 30 s, so a verb that does not mind its --timeout takes longer."""


@pytest.fixture
def storm(cluster):
    """Return a function that begins a storm; it returns a function that ends the storm and returns its number of requests."""

    def begin(fault):
        async def add(server):
            return server.faults.add(fault)

        handle = cluster.server.call(add)

        def end():
            async def lift(server):
                server.faults.clear()
                return handle.met

            return cluster.server.call(lift)

        return end

    return begin


def run_command_line(line, capsys):
    """Return the status of a command line, its output, its errors and its seconds."""
    began = time.monotonic()
    try:
        status = main.main([*line.split(), "--timeout", "1s"])
    except SystemExit as ended:
        status = ended.code
    printed = capsys.readouterr()
    return status, printed.out, printed.err, time.monotonic() - began


@pytest.mark.drawbar(profile="1.37")
@pytest.mark.parametrize("fault", STORMS.values(), ids=STORMS)
def test_a_verb_in_a_storm_ends_in_time_with_one_sentence_and_says_nothing_is_well(storm, capsys, fault):
    wrong = []
    # doctor reads single objects as well and reports these.
    for line in (line for line in LINES if line != "doctor" or fault.select != READS):
        end = storm(fault)
        status, out, err, seconds = run_command_line(line, capsys)
        requests = end()
        is_late = line.startswith("taint add") and "not finished within 1 s: the steps that were begun" in err
        is_one_sentence = err.startswith("error: ") and err.count("\n") == 1 and "Traceback" not in err
        if (
            status != (1 if is_late else 3)
            or out
            or not is_one_sentence
            or seconds > SECONDS_MAX
            or not 0 < requests <= REQUESTS_MAX
        ):
            wrong.append((line, status, out, err, seconds, requests))
    assert wrong == []


@pytest.mark.drawbar(profile="1.37")
def test_a_verb_after_the_storm_shows_the_cluster_as_it_is(storm, capsys):
    before = run_command_line("status -o json", capsys)[:3]
    end = storm(STORMS["connections cut"])
    assert run_command_line("status -o json", capsys)[0] == 3
    end()
    assert run_command_line("status -o json", capsys)[:3] == before

"""The control socket of the simulated fabric: commands as JSON and as words, from another process."""

import argparse
import asyncio
import json
import socket

import pytest

from drawbar.fabric import contract, errors
from drawbar.mocks import errors as mock_errors
from drawbar.mocks.fabric import SimulatedFabric, command, commands, configuration, control

FABRIC = {
    "hosts": [{"id": "h1", "ports": 2}],
    "enclosures": [{"id": "e", "devices": [{"id": "d1", "class": "gpu"}, {"id": "d2", "class": "gpu"}]}],
}


@pytest.fixture
def endpoint(tmp_path):
    return f"unix:{tmp_path}/control"


@pytest.fixture
async def fabric(endpoint):
    described = configuration.parse(json.dumps(FABRIC).encode())
    async with SimulatedFabric.running(described) as simulated, control.serving(simulated.console, endpoint):
        yield simulated


async def tell(endpoint, *words):
    return await control.tell(endpoint, commands.from_words(words))


async def test_commands_in_words_change_the_fabric(fabric, endpoint):
    async def device(device_id="d1"):
        return (await fabric.devices()).device(device_id)

    assert await tell(endpoint, "foreign-attach", "d1", "h1") == {"ok": True}
    assert (await device()).connection.port_id == "1"
    await tell(endpoint, "forget-connection", "d1")
    assert (await device()).connection is None
    await tell(endpoint, "recall-connection", "d1")
    assert (await device()).connection.port_id == "1"
    await tell(endpoint, "surprise-detach", "d1")
    assert (await device()).connection is None
    await tell(endpoint, "set-health", "d1", "warning")
    assert (await device()).health is contract.Health.WARNING
    await tell(endpoint, "add-device", "e", '{"id": "d3", "class": "nvme", "serial": "S"}')
    assert (await device("d3")).serial == "S"
    await tell(endpoint, "remove-device", "d3")
    assert await device("d3") is None
    await tell(endpoint, "set-port", "h1", "1", "fault")
    assert (await fabric.hosts())[0].ports[0].state is contract.PortState.FAULT
    await tell(endpoint, "set-port", "h1", "1", "ok")
    await tell(endpoint, "add-fault", '{"effect": "refuse", "method": "hosts", "times": null}')
    with pytest.raises(errors.Unavailable):
        await fabric.hosts()
    await tell(endpoint, "clear-faults")
    await fabric.hosts()


async def test_commands_about_the_manager_take_effect(fabric, endpoint):
    await fabric.attach(contract.AttachRequest(request_id="r", device_id="d1", host_id="h1"))
    await tell(endpoint, "forget-operations")
    assert await fabric.operations() == ()
    await tell(endpoint, "pause")
    assert not fabric.console.awake.is_set()
    await tell(endpoint, "resume")
    assert fabric.console.awake.is_set()
    async with asyncio.timeout(120), fabric.watch((await fabric.devices()).version) as events:
        await anext(events)
        await tell(endpoint, "resync")
        assert [event async for event in events] == [contract.Resync()]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"command": "surprise-detach", "device": "d9"}', "NOT_FOUND"),
        (b'{"command": "surprise-detach"}', "INVALID_ARGUMENT"),
        (b'{"command": "explode"}', "INVALID_ARGUMENT"),
        (b'{"command": "pause", "for": 3}', "INVALID_ARGUMENT"),
        (
            b'{"command": "add-device", "enclosure": "e", "device": {"id": "", "class": "gpu"}}',
            "INVALID_ARGUMENT",
        ),
        (
            b'{"command": "add-device", "enclosure": "e", "device": {"id": "d1", "class": "gpu"}}',
            "ALREADY_EXISTS",
        ),
        (b"nonsense", "INVALID_ARGUMENT"),
    ],
)
async def test_a_command_that_cannot_be_done_is_answered_with_the_fabrics_error(fabric, endpoint, line, code):
    before = await fabric.devices()
    answer = await control.tell(endpoint, line + b"\n")
    assert (answer["ok"], answer["code"]) == (False, code)
    assert answer["message"]
    assert await fabric.devices() == before


async def test_one_client_can_give_many_commands_and_leave_while_others_stay(fabric, endpoint):
    path = endpoint.removeprefix("unix:")
    reader, writer = await asyncio.open_unix_connection(path)
    other_reader, other = await asyncio.open_unix_connection(path)
    for _ in range(3):
        writer.write(b'{"command": "resync"}\n')
    assert [json.loads(await reader.readline()) for _ in range(3)] == [{"ok": True}] * 3
    writer.close()
    other.write(b"x" * (2 * control.LINE_BYTES) + b"\n")
    assert await other_reader.read() == b""
    other.close()
    assert await tell(endpoint, "resync") == {"ok": True}


async def test_a_socket_that_was_left_behind_is_replaced_and_removed_at_the_end(endpoint, tmp_path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "control"))
    described = configuration.parse(json.dumps(FABRIC).encode())
    async with SimulatedFabric.running(described) as simulated:
        async with control.serving(simulated.console, endpoint):
            assert await tell(endpoint, "pause") == {"ok": True}
        assert not (tmp_path / "control").exists()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("tcp:1", "not a UNIX socket"),
        ("unix:/no/such/directory/c", "cannot listen"),
        ("unix:/" + "x" * 200, "107"),
    ],
)
async def test_a_control_socket_that_cannot_be_is_refused(wrong, words):
    described = configuration.parse(json.dumps(FABRIC).encode())
    async with SimulatedFabric.running(described) as simulated:
        with pytest.raises(errors.InvalidConfiguration, match=words):
            async with control.serving(simulated.console, wrong):
                pass


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["explode"], "no command explode: choose surprise-detach"),
        (["pause", "now"], "pause takes no more words"),
        (["add-device", "e", "{"], "not JSON"),
    ],
)
def test_words_that_are_no_command_are_told_in_a_sentence(words, complaint):
    with pytest.raises(errors.InvalidArgument, match=complaint):
        commands.from_words(words)


def parse_arguments(*words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args([str(word) for word in words])


async def test_the_command_tells_and_prints_the_answer(fabric, endpoint, capsys):
    assert (
        await command.serve(parse_arguments("--control", endpoint, "--tell", "foreign-attach", "d1", "h1"))
        == 0
    )
    assert json.loads(capsys.readouterr().out) == {"ok": True}
    assert (
        await command.serve(parse_arguments("--control", endpoint, "--tell", "foreign-attach", "d1", "h1"))
        == 1
    )
    assert json.loads(capsys.readouterr().out)["reason"] == "IN_USE"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "needs --listen and one of --config and --devices"),
        (["--tell", "pause"], "needs --control"),
        (["--control", "unix:/no/such/socket", "--tell", "pause"], "is it running"),
        (["--control", "unix:/no/such/socket", "--tell", "dance"], "no command dance"),
    ],
)
async def test_user_errors_are_reported_with_a_sentence(words, complaint):
    with pytest.raises(mock_errors.UsageError, match=complaint):
        await command.serve(parse_arguments(*words))


def test_the_help_names_every_command(capsys):
    with pytest.raises(SystemExit):
        parse_arguments("--help")
    reported = capsys.readouterr().out
    assert all(commands.usage(kind) in reported for kind in commands.COMMANDS)
    assert "add-device ENCLOSURE DEVICE" in reported

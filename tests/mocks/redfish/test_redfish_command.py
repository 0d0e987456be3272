"""`drawbar mock redfish`: options, the ready line, faults, and what users get wrong."""

import argparse
import asyncio
import io
import json
import ssl
import sys

import aiohttp
import pytest
import trustme

from drawbar.mocks import errors
from drawbar.mocks.redfish import command, faults

DESCRIBED = {
    "hosts": [{"id": "h1"}],
    "enclosures": [{"id": "e1", "devices": [{"id": "d1", "kind": "gpu"}]}],
}


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "redfish.json"
    path.write_text(json.dumps(DESCRIBED))
    return path


def parse_arguments(*arguments):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args([str(argument) for argument in arguments])


class Output(io.StringIO):
    """Standard output that shows when something was written."""

    def __init__(self):
        super().__init__()
        self.written = asyncio.Event()

    def write(self, text):
        self.written.set()
        return super().write(text)


async def answers(monkeypatch, arguments, *requests, tls=False):
    """Return the endpoint, and the status of each request (method and path) to the command, and end it."""
    output = Output()
    monkeypatch.setattr(sys, "stdout", output)
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(command.serve(arguments), name="serve")
        await output.written.wait()
        endpoint = json.loads(output.getvalue())["endpoint"]
        async with aiohttp.ClientSession(endpoint) as client:
            statuses = []
            for method, path in requests:
                async with client.request(method, path, ssl=tls, json={}) as response:
                    statuses.append(response.status)
        serving.cancel()
    return endpoint, statuses


async def test_it_serves_on_loopback_until_it_is_cancelled(config, monkeypatch):
    endpoint, statuses = await answers(
        monkeypatch, parse_arguments("--config", config), ("GET", "/redfish/v1/Systems/h1")
    )
    assert endpoint.startswith("http://127.0.0.1:")
    assert statuses == [200]


async def test_it_serves_https_with_the_certificate(config, monkeypatch, tmp_path):
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "c.pem")
    issued.private_key_pem.write_to_path(tmp_path / "k.pem")
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    arguments = parse_arguments(
        "--config", config, "--certificate", tmp_path / "c.pem", "--key", tmp_path / "k.pem"
    )
    endpoint, statuses = await answers(monkeypatch, arguments, ("GET", "/redfish/v1/"), tls=trusted)
    assert endpoint.startswith("https://127.0.0.1:")
    assert statuses == [200]


async def test_a_fault_meets_the_requests_that_it_names(config, monkeypatch):
    arguments = parse_arguments("--config", config, "--fault", "busy:GET:/Systems:2:1")
    requests = [("GET", "/redfish/v1/Systems")] * 4
    _, statuses = await answers(monkeypatch, arguments, *requests)
    assert statuses == [200, 503, 503, 200]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("lost-reply", faults.Fault(kind=faults.FaultKind.LOST_REPLY)),
        (
            "html:POST+PATCH:/Systems:all:3",
            faults.Fault(
                kind=faults.FaultKind.HTML, methods=("POST", "PATCH"), path="/Systems", times=None, after=3
            ),
        ),
        ("busy::/Systems", faults.Fault(kind=faults.FaultKind.BUSY, path="/Systems")),
    ],
)
def test_a_fault_is_described_in_a_few_words(text, fault):
    assert command.parse_fault(text) == fault


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lost", "KIND one of lost-reply"),
        ("", "KIND one of lost-reply"),
        ("busy:GET:/:1:1:1", "give KIND"),
        ("busy:FETCH", "FETCH is no method"),
        ("busy:GET:/:often", '"often" is not a whole number'),
        ("busy:GET:/:1:-1", '"-1" is not a whole number'),
        ("busy:GET:/:1:all", "give a number"),
    ],
)
def test_a_fault_that_is_none_is_refused_in_a_sentence(text, words):
    with pytest.raises(errors.UsageError) as refused:
        command.parse_fault(text)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read"),
        ("{", "describes no Redfish service"),
        ('{"host": []}', "host"),
        ('{"hosts": [{"id": "a b"}]}', "$.hosts[0].id"),
        ('{"hosts": [{"id": "a"}, {"id": "a"}]}', "is there twice"),
        (
            '{"method": "composition", "enclosures": [{"id": "e", "devices": [{"id": "n", "kind": "nic"}]}]}',
            "nic",
        ),
        ('{"hosts": [{"id": "a", "uuid": "1"}]}', 'uuid "1"'),
        (
            '{"method": "connections", "enclosures": [{"id": "e", "devices": [{"id": "g", "kind": "gpu"}]}]}',
            "no cxl-memory",
        ),
        ('{"initiators": false}', "without initiators"),
    ],
)
async def test_a_configuration_that_is_none_is_refused_in_a_sentence(tmp_path, content, words):
    path = tmp_path / "bad.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(errors.UsageError) as refused:
        await command.serve(parse_arguments("--config", path))
    assert words in str(refused.value)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--port", "70000"), "give 0 to 65535"),
        (("--certificate", "/c.pem"), "go together"),
        (("--certificate", "/no/c.pem", "--key", "/no/k.pem"), "cannot be used"),
        (("--certificate", __file__, "--key", __file__), "as PEM"),
    ],
)
async def test_options_that_cannot_be_used_are_refused_in_a_sentence(config, options, words):
    with pytest.raises(errors.UsageError) as refused:
        await command.serve(parse_arguments("--config", config, *options))
    assert words in str(refused.value)


async def test_a_port_that_is_taken_is_refused_in_a_sentence(config):
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    async with taken:
        port = taken.sockets[0].getsockname()[1]
        with pytest.raises(errors.UsageError) as refused:
            await command.serve(parse_arguments("--config", config, "--port", port))
    assert "give another, or none" in str(refused.value)

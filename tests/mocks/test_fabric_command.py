"""`drawbar mock fabric` as a process of its own."""

import argparse
import asyncio
import io
import json
import signal
import sys
from contextlib import asynccontextmanager

import pytest
import trustme

from drawbar.fabric import contract
from drawbar.fabric.grpc.adapter import GrpcAdapter
from drawbar.mocks import errors as mock_errors
from drawbar.mocks.fabric import command

PROGRAM = """
import argparse, asyncio, sys
from drawbar.mocks.fabric import command
parser = argparse.ArgumentParser()
command.add_arguments(parser)
sys.exit(asyncio.run(command.serve(parser.parse_args())))
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "fabric.json"
    device = {"id": "d1", "class": "gpu"}
    described = {"hosts": [{"id": "h1"}], "enclosures": [{"id": "e", "devices": [device]}]}
    path.write_text(json.dumps(described))
    return path


def parse_arguments(*arguments):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(arguments)


@asynccontextmanager
async def process(*arguments):
    """Run the mock as a process; kill it at the end if it still runs."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


async def test_it_says_when_it_serves_remembers_over_a_kill_and_ends_on_sigterm(tmp_path, config):
    endpoint = f"unix:{tmp_path}/f.sock"
    arguments = [
        "--config",
        config,
        "--listen",
        endpoint,
        "--state",
        tmp_path / "s",
        "--journal",
        tmp_path / "j",
    ]
    adapter_config = contract.AdapterConfig(name="f", endpoint=endpoint, timeout_seconds=10)
    async with process(*arguments) as child:
        assert json.loads(await child.stdout.readline()) == {"ready": True, "endpoint": endpoint}
        async with await GrpcAdapter.connect(adapter_config) as adapter:
            request = contract.AttachRequest(request_id="r", device_id="d1", host_id="h1")
            assert (await adapter.attach(request)).succeeded
        child.send_signal(signal.SIGKILL)
        await child.wait()
    async with process(*arguments) as child:
        assert json.loads(await child.stdout.readline())["ready"]
        async with await GrpcAdapter.connect(adapter_config) as adapter:
            assert (await adapter.devices()).device("d1").connection.host_id == "h1"
        child.send_signal(signal.SIGTERM)
        rest, errors_ = await child.communicate()
        assert (child.returncode, rest, errors_) == (0, b"", b"")
    assert not (tmp_path / "f.sock").exists()
    assert len((tmp_path / "j").read_text().splitlines()) == 2


async def test_over_the_network_it_serves_those_who_show_a_certificate(tmp_path, config):
    authority = trustme.CA()
    own, caller = authority.issue_cert("127.0.0.1"), authority.issue_cert("drawbar.example")
    files = {name: tmp_path / name for name in ("certificate", "key", "authority")}
    authority.cert_pem.write_to_path(files["authority"])
    own.private_key_pem.write_to_path(files["key"])
    own.cert_chain_pems[0].write_to_path(files["certificate"])
    options = [word for name, file in files.items() for word in (f"--{name}", file)]
    credentials = contract.Credentials(
        authority=authority.cert_pem.bytes().decode(),
        certificate=caller.cert_chain_pems[0].bytes().decode(),
        key=caller.private_key_pem.bytes().decode(),
    )
    async with process("--config", config, "--listen", "tls://127.0.0.1:0", *options) as child:
        endpoint = json.loads(await child.stdout.readline())["endpoint"]
        adapter_config = contract.AdapterConfig(
            name="f", endpoint=endpoint, credentials=credentials, timeout_seconds=10
        )
        async with await GrpcAdapter.connect(adapter_config) as adapter:
            assert (await adapter.devices()).device("d1") is not None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--listen", "tls://127.0.0.1:0"), "goes with --certificate"),
        (("--listen", "unix:/tmp/f", "--key", "k"), "goes with --certificate"),
        (
            ("--listen", "tls://0.0.0.0:1", "--certificate", "c", "--key", "k", "--authority", "a"),
            "not an address of this machine alone",
        ),
    ],
)
async def test_certificates_go_with_an_address_of_this_machine(config, options, words):
    with pytest.raises(mock_errors.UsageError, match=words):
        await command.serve(parse_arguments("--config", str(config), *options))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"--config": "/no/such/file.json"}, "cannot be read"),
        ({"--listen": "unix:/no/such/directory/f.sock"}, "does not exist"),
        ({"--listen": "tcp:1"}, "not an address of a plugin"),
        ({"--journal": "/no/such/directory/j"}, "/no/such/directory/j"),
        ({"--state": "/dev/null"}, "remove it to start afresh"),
    ],
)
async def test_user_errors_end_in_a_sentence_without_a_traceback(
    tmp_path, config, capsys, caplog, changes, words
):
    options = {"--config": str(config), "--listen": f"unix:{tmp_path}/f.sock", **changes}
    assert await command.serve(parse_arguments(*(word for pair in options.items() for word in pair))) == 1
    assert capsys.readouterr().out == ""
    # The program's log is what the user sees on stderr.
    (complaint,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert words in complaint.getMessage()
    assert complaint.exc_info is None


async def test_others_can_give_commands(tmp_path, config):
    endpoint, commands = f"unix:{tmp_path}/f.sock", f"unix:{tmp_path}/c.sock"
    adapter_config = contract.AdapterConfig(name="f", endpoint=endpoint, timeout_seconds=10)
    async with process("--config", config, "--listen", endpoint, "--control", commands) as child:
        assert json.loads(await child.stdout.readline())["control"] == commands
        async with await GrpcAdapter.connect(adapter_config) as adapter:
            await adapter.attach(contract.AttachRequest(request_id="r", device_id="d1", host_id="h1"))
            async with process("--control", commands, "--tell", "surprise-detach", "d1") as other:
                assert json.loads(await other.stdout.readline()) == {"ok": True}
            assert (await adapter.devices()).device("d1").connection is None


class Output(io.StringIO):
    """Standard output that tells when something was written."""

    def __init__(self):
        super().__init__()
        self.written = asyncio.Event()

    def write(self, text):
        self.written.set()
        return super().write(text)


async def test_cancelling_ends_it_too(tmp_path, config, monkeypatch):
    arguments = parse_arguments("--config", str(config), "--listen", f"unix:{tmp_path}/f.sock")
    output = Output()
    monkeypatch.setattr(sys, "stdout", output)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(command.serve(arguments))
        await output.written.wait()
        task.cancel()
    assert task.cancelled()
    assert not (tmp_path / "f.sock").exists()

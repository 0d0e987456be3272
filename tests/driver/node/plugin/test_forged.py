"""Forged calls on the kubelet's sockets, against a node daemon in a process of its own."""

import asyncio
import contextlib
import socket
import stat
import sys

import grpc.aio
import pytest
from tests.scenes import http2, nodeprocesses, nodes

from drawbar.driver.node.plugin import servicers
from drawbar.proto.kubelet.dra.v1 import api_pb2
from drawbar.proto.kubelet.pluginregistration.v1 import api_pb2 as registration_pb2
from drawbar.proto.kubelet.pluginregistration.v1 import api_pb2_grpc as registration_pb2_grpc

PREPARE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
# Runs as nobody.
CONNECT = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
except OSError as error:
    print(error.strerror)
else:
    print("connected")
"""


@pytest.fixture
async def node(tmp_path):
    async with nodeprocesses.running(tmp_path, "one") as (node, instance):
        yield node, instance


async def use(node):
    """Bring the disk to the node for the claim `c1`; return its uid."""
    claim = await node.allocate_claim()
    await node.attach(claim)
    await node.controller_says()
    await node.plug()
    return claim["metadata"]["uid"]


def files(node):
    return {path.name: path.read_bytes() for path in (node.folder / "cdi").glob("*.json")}


@pytest.mark.tool("root")
async def test_no_other_user_of_the_node_can_open_a_socket(node, tmp_path):
    _, instance = node
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and folder.stat().st_mode & stat.S_IXOTH == 0:
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    for path in (instance.sockets.service, instance.sockets.registration):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CONNECT, str(path)), stdout=asyncio.subprocess.PIPE
        )
        assert (await process.communicate())[0] == b"Permission denied\n"
        with socket.socket(socket.AF_UNIX) as own:
            own.connect(str(path))


async def test_a_claim_under_the_name_of_another_is_neither_prepared_nor_recorded(node):
    """Otherwise the claim would look deleted in the record, and its user would lose the device."""
    node, instance = node
    uid = await use(node)
    for name in ("other", "c1.x"):
        assert (
            f"the UID {uid} is not that of claim default/{name}"
            in (await instance.prepare((name, uid)))[uid].error
        )
    assert files(node) == {}
    first = (await instance.prepare(("c1", uid)))[uid]
    assert not first.error
    before = files(node)
    assert (await instance.prepare(("other", uid)))[uid].error
    assert (files(node), (await instance.prepare(("c1", uid)))[uid]) == (before, first)


FORGED = {
    "unknown": ("c1", "0000"),
    "path": ("../../../nodes/node-1", "u"),
    "long": ("c" * 300, "u"),
    "controls": ("c1\x1b[2J\n", "u"),
    "no name": ("", "u"),
    "long uid": ("c1", "u" * 200_000),
    "uid of a path": ("c1", "x/../../pwn"),
    "no uid": ("c1", ""),
}


async def test_forged_names_get_an_error_each_and_nothing_is_written_of_them(node):
    node, instance = node
    uid = await use(node)
    answers = await instance.prepare(("c1", uid), *FORGED.values())
    assert not answers[uid].error
    assert len(answers[uid].devices) == 1
    assert all(answers[forged].error for _, forged in FORGED.values())
    before = files(node)
    await instance.unprepare(*FORGED.values())
    assert files(node) == before
    log = instance.log.read_text()
    assert "\x1b" not in log
    assert max(map(len, log.splitlines())) < 4096


async def test_a_claim_that_one_call_names_many_times_gets_one_record_and_one_file(node):
    node, instance = node
    uid = await use(node)
    calls = [instance.prepare(*[("c1", uid)] * servicers.CLAIMS_LIMIT) for _ in range(4)]
    answers = await asyncio.gather(*calls)
    assert all(answer == answers[0] and not answer[uid].error for answer in answers)
    assert len(files(node)) == 1


async def test_a_call_for_more_claims_than_a_pod_has_is_refused_before_any_is_looked_up(node):
    _, instance = node
    many = [("c1", f"u{number}") for number in range(100_000)]
    for call in (instance.prepare, instance.unprepare):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(*many)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "one call names 100000 claims" in refused.value.details()


async def test_bytes_that_are_no_message_cost_their_caller_an_error(node):
    node, instance = node
    uid = await use(node)
    named = api_pb2.Claim(namespace="default", name="c1", uid=uid).SerializeToString()
    wrong = [
        b"\x0a\x05\x0a\x03\xff\xfe\xfd",  # a namespace that is no UTF-8
        b"\x0a\xff\xff\xff\xff\x0f",  # longer than there are bytes
        b"\x0b" * 50_000,  # groups in groups
        b"\x0a" + bytes([len(named)]) + named[:-1] + b"\xff",
        bytes(100),
    ]
    async with grpc.aio.insecure_channel(f"unix:{instance.sockets.service}") as channel:
        for raw in wrong:
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary(PREPARE)(raw, timeout=120)
    assert not (await instance.prepare(("c1", uid)))[uid].error
    assert "Traceback" not in instance.log.read_text()


async def test_a_flood_of_calls_beyond_the_limit_is_refused_and_the_kubelet_is_served(node):
    node, instance = node
    uid = await use(node)
    usage = http2.Usage(instance.process.pid)

    async def flood(stub):
        request = api_pb2.NodePrepareResourcesRequest(
            claims=[api_pb2.Claim(namespace="default", name=f"c-{n}", uid=f"u-{n}") for n in range(10)]
        )
        with contextlib.suppress(grpc.aio.AioRpcError):
            await stub.NodePrepareResources(request, timeout=120)

    async with instance.stub() as stub:
        flooding = asyncio.gather(*(flood(stub) for _ in range(300)))
        async with asyncio.timeout(120):
            assert not (await instance.prepare(("c1", uid)))[uid].error
        await flooding
    assert usage.grown_bytes < 64 << 20


async def test_a_stranger_at_the_registration_socket_only_changes_the_log(node):
    node, instance = node
    uid = await use(node)
    async with grpc.aio.insecure_channel(f"unix:{instance.sockets.registration}") as channel:
        stub = registration_pb2_grpc.RegistrationStub(channel)
        info = await stub.GetInfo(registration_pb2.InfoRequest(), wait_for_ready=True)
        assert (info.name, info.endpoint) == (nodes.DRIVER, str(instance.sockets.service))
        refusal = registration_pb2.RegistrationStatus(
            plugin_registered=False, error="\x1b[2J\n" + "x" * 1_000_000
        )
        await stub.NotifyRegistrationStatus(refusal, timeout=120)
    assert not (await instance.prepare(("c1", uid)))[uid].error
    (reported,) = [message for message in instance.messages() if "refused the driver" in message]
    assert len(reported) < servicers.REASON_LIMIT_CHARS + 50
    assert reported.isprintable()

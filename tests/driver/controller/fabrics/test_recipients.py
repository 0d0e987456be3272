"""A Fabric gets the credentials of a Secret only as the Secret allows: whoever edits the Fabric cannot have them sent elsewhere."""

import asyncio
import base64
import contextlib
import json
import shlex
import ssl

import pytest
import trustme

from drawbar.driver.api import core, meta
from drawbar.driver.controller.fabrics import credentials
from drawbar.driver.kube import client, kinds
from drawbar.fabric import contract
from drawbar.mocks import redfish
from drawbar.mocks.cluster import deployment
from drawbar.mocks.redfish.configuration import Configuration, Device, Enclosure, Host

USER, PASSWORD = "admin", "hunter2-of-the-real-manager"
SECRET = "fabric-credentials"
GPU = Device(id="gpu-1", kind="gpu", model="A100", serial="S1")
CONFIGURATION = Configuration(
    hosts=(Host(id="node-1"),),
    enclosures=(Enclosure(id="e1", devices=(GPU,)),),
    username=USER,
    password=PASSWORD,
)


def encode_secret(values):
    return {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}


# --- the rule ---


def choose(recipient=None, **values):
    values = {"token": "t", "origins": "https://bmc:443"} | values
    data = encode_secret({key.replace("_", "-"): value for key, value in values.items() if value is not None})
    secret = core.Secret(metadata=meta.ObjectMeta(name="s"), data=data)
    asked = {"fabric": "rack", "endpoint": "https://bmc"} | (recipient or {})
    return credentials.choose("s", "ns", secret, credentials.Recipient(**asked))


@pytest.mark.parametrize(
    ("recipient", "values"),
    [
        ({}, {}),
        ({"endpoint": "https://BMC:443/redfish/v1"}, {}),
        ({}, {"origins": "https://other\n\n https://bmc/ \n"}),
        ({}, {"fabrics": "other\nrack"}),
        ({"verify": False}, {"insecure_skip_verify": "true\n"}),
        ({"server_name": "bmc"}, {}),
        ({"server_name": "rack.example.com"}, {"server_names": "rack.example.com"}),
        ({"endpoint": "unix:/run/a.sock"}, {"origins": "unix:/run/a.sock"}),
        ({"endpoint": "http://127.0.0.1:80"}, {"origins": "http://127.0.0.1"}),
    ],
)
def test_a_recipient_that_the_secret_names_gets_the_credentials(recipient, values):
    assert choose(recipient, **values) == contract.Credentials(token="t")


@pytest.mark.parametrize(
    ("recipient", "values", "reason", "patch"),
    [
        ({}, {"origins": None}, "CredentialsUnbound", {"origins": "https://bmc:443"}),
        ({"endpoint": "https://evil"}, {}, "CredentialsNotForFabric", {"origins": "https://evil:443"}),
        ({"endpoint": "http://bmc:443"}, {}, "CredentialsNotForFabric", {"origins": "http://bmc:443"}),
        ({"endpoint": "https://bmc:444"}, {}, "CredentialsNotForFabric", {"origins": "https://bmc:444"}),
        ({"endpoint": "tls://bmc:443"}, {}, "CredentialsNotForFabric", {"origins": "tls://bmc:443"}),
        ({"endpoint": "unix:/a'b"}, {}, "CredentialsNotForFabric", {"origins": "unix:/a'b"}),
        ({}, {"fabrics": "rac\nrack2"}, "CredentialsNotForFabric", {"fabrics": "rack"}),
        ({"verify": False}, {}, "CredentialsNotForFabric", {"insecure-skip-verify": "true"}),
        (
            {"verify": False},
            {"insecure_skip_verify": "false"},
            "CredentialsNotForFabric",
            {"insecure-skip-verify": "true"},
        ),
        ({"server_name": "evil\n"}, {}, "CredentialsNotForFabric", {"server-names": "evil\n"}),
    ],
)
def test_any_other_gets_none_and_the_command_that_would_allow_it(recipient, values, reason, patch):
    refused = choose(recipient, **values)
    assert refused.reason == reason
    command = shlex.split(refused.message.partition("run: ")[2].partition("; this replaces")[0])
    assert command[:-1] == ["kubectl", "--namespace", "ns", "patch", "secret", "s", "--type=merge", "--patch"]
    assert json.loads(command[-1]) == {"stringData": patch}
    assert refused.message.isprintable()


@pytest.mark.parametrize(
    "endpoint", ["https://bmc:443@evil", "https://user:hunter2@bmc", "https://bmc\\evil"]
)
def test_an_endpoint_that_could_be_read_in_two_ways_gets_none_and_is_not_quoted(endpoint):
    refused = choose({"endpoint": endpoint})
    assert refused.reason == "CredentialsNotForFabric"
    assert "hunter2" not in refused.message


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"origins": "bmc\nhttps://bmc/redfish"}, "line 2 of origins is not an origin"),
        ({"origins": "\n"}, "origins has 0 lines"),
        ({"origins": "https://a\n" * 65}, "origins has 65 lines"),
        ({"fabrics": " "}, "fabrics has 0 lines"),
        ({"insecure_skip_verify": "yes"}, "insecure-skip-verify is neither true nor false"),
        ({"orgins": "https://bmc"}, "the key orgins is unknown; known are username"),
    ],
)
def test_recipients_that_cannot_be_meant_are_reported_by_their_key(values, words):
    refused = choose(**values)
    assert refused.reason == "CredentialsInvalid"
    assert words in refused.message


# --- the attack ---


class Stranger:
    """A server that keeps what it is sent; it can be given a certificate."""

    def __init__(self):
        self.received = []

    async def take(self, reader, writer):
        self.received.append(b"a connection")
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while content := await reader.read(65536):
                self.received.append(content)
                body = b'{"@odata.id":"/redfish/v1","RedfishVersion":"1.9.0","Fabrics":{}}'
                head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        writer.close()


@pytest.fixture
async def strangers(tmp_path):
    """Yield an attacker with servers by TLS, in clear and at a UNIX socket, and their endpoints by scheme."""
    stranger, authority = Stranger(), trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    socket = tmp_path / "stranger.sock"
    async with contextlib.AsyncExitStack() as stack:
        by_tls = await asyncio.start_server(stranger.take, "127.0.0.1", 0, ssl=context)
        in_clear = await asyncio.start_server(stranger.take, "127.0.0.1", 0)
        at_socket = await asyncio.start_unix_server(stranger.take, socket)
        for server in (by_tls, in_clear, at_socket):
            stack.callback(server.close)
        ports = [server.sockets[0].getsockname()[1] for server in (by_tls, in_clear)]
        yield (
            stranger,
            {
                "https": f"https://127.0.0.1:{ports[0]}",
                "tls": f"tls://127.0.0.1:{ports[0]}",
                "http": f"http://127.0.0.1:{ports[1]}",
                "unix": f"unix:{socket}",
            },
        )


EDITS = {
    "its TLS server without verification": lambda at: {"endpoint": at["https"], "tls": {"verify": False}},
    "its TLS server": lambda at: {"endpoint": at["https"]},
    "its server in clear": lambda at: {"endpoint": at["http"]},
    "a user name that looks like the manager": lambda at: {
        "endpoint": at["http"].replace("http://", "http://127.0.0.1:443@")
    },
    "another adapter at its TLS server": lambda at: {"adapter": "grpc", "endpoint": at["tls"]},
    "another adapter at its socket": lambda at: {"adapter": "grpc", "endpoint": at["unix"]},
    "its server with the Secret of another Fabric": lambda at: {
        "endpoint": at["http"],
        "credentialsSecretRef": {"name": "another"},
    },
    "its server and the name in its certificate": lambda at: {
        "endpoint": at["https"],
        "tls": {"serverName": "evil.example.com"},
    },
}


async def edit(cluster, change):
    """Do what a user does who may patch Fabrics, and nothing else."""
    await cluster.api.patch(kinds.FABRIC, "rack", {"spec": change}, content=client.Patch.MERGE, into=dict)


async def make_secret(cluster, name, **values):
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encode_secret(values)}
    await cluster.api.create(kinds.SECRET, body, namespace="drawbar", into=dict)


@pytest.mark.parametrize("name", EDITS)
async def test_a_fabric_that_is_edited_and_put_back_sends_nothing_elsewhere(
    controller_world, strangers, name
):
    stranger, endpoints = strangers
    async with controller_world() as cluster, redfish.serving(CONFIGURATION) as service:
        login = {"username": USER, "password": PASSWORD}
        await make_secret(cluster, SECRET, **login, origins=service.url)
        kind = deployment.KINDS["Role"]
        role = await cluster.api.read(kind, "drawbar-fabric-credentials", namespace="drawbar", into=dict)
        role["rules"][0]["resourceNames"].append("another")
        await cluster.api.replace(kind, role["metadata"]["name"], role, namespace="drawbar", into=dict)
        await make_secret(cluster, "another", **login, origins="https://another.example.com")
        cluster.start(leader_election=False)
        good = {"adapter": "redfish", "endpoint": service.url, "credentialsSecretRef": {"name": SECRET}}
        await cluster.make_fabric("rack", **good)
        await cluster.condition("Connected", "rack", status="True")
        await edit(cluster, EDITS[name](endpoints))
        condition = await cluster.condition("Connected", "rack", reason="CredentialsNotForFabric")
        assert PASSWORD not in condition["message"]
        await edit(cluster, good | {"tls": None})
        await cluster.condition("Connected", "rack", status="True")
    assert stranger.received == []


async def test_the_manager_itself_is_not_asked_without_verification_where_the_secret_does_not_allow_it(
    controller_world,
):
    async with controller_world() as cluster, redfish.serving(CONFIGURATION) as service:
        await make_secret(cluster, SECRET, username=USER, password=PASSWORD, origins=service.url)
        cluster.start(leader_election=False)
        reference = {"credentialsSecretRef": {"name": SECRET}, "tls": {"verify": False}}
        await cluster.make_fabric("rack", adapter="redfish", endpoint=service.url, **reference)
        condition = await cluster.condition("Connected", "rack", reason="CredentialsNotForFabric")
        assert "insecure-skip-verify" in condition["message"]
        assert service.issued == []
        change = {"data": encode_secret({"insecure-skip-verify": "true"})}
        await cluster.api.patch(
            kinds.SECRET, SECRET, change, content=client.Patch.MERGE, into=dict, namespace="drawbar"
        )
        await cluster.condition("Connected", "rack", status="True")

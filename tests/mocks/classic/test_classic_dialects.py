"""Which version of `resource.k8s.io` the doubles speak with which API server."""

import asyncio

import msgspec
import pytest

from drawbar.mocks import apiserver
from drawbar.mocks.claims import dialects, discovery, documents, users
from drawbar.mocks.kube import client, connections, meta


@pytest.mark.parametrize(
    ("profile", "dialect"),
    [
        ("1.30-classic", dialects.V1ALPHA2),
        ("1.31-classic", dialects.V1ALPHA3),
        ("1.34", dialects.MODERN),
        ("1.37", dialects.MODERN),
    ],
)
async def test_the_release_decides(tmp_path, profile, dialect):
    async with apiserver.serving(profile=profile) as server:
        connection = connections.from_kubeconfig(server.kubeconfig(tmp_path / "kubeconfig"))
        async with client.connecting(connection) as api:
            assert await discovery.dialect(api) == dialect


def _resources(*names):
    return "200 OK", msgspec.json.encode({"resources": [{"name": name} for name in names]})


GROUP = ("200 OK", b'{"versions": [{"version": "v1alpha3"}, {"version": "v1alpha2"}]}')
# What is asked for, and what is answered: two rounds that come to nothing, and one that does not.
ROUNDS = (
    ("resource.k8s.io", ("503 Service Unavailable", b"{}")),
    ("resource.k8s.io", GROUP),
    ("v1alpha3", ("200 OK", b"something else")),
    ("resource.k8s.io", GROUP),
    ("v1alpha3", _resources("resourceslices")),
    ("v1alpha2", _resources("resourceclaims", "podschedulingcontexts")),
)


async def test_a_server_that_does_not_answer_yet_is_asked_again():
    asked = []

    async def answer(reader, writer):
        asked.append((await reader.readuntil(b"\r\n\r\n")).split()[1].decode().rpartition("/")[2])
        status, body = ROUNDS[len(asked) - 1][1]
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = "http://{}:{}".format(*server.sockets[0].getsockname())
        connection = connections.Connection(server=url, tls=None, authorization=lambda: None)
        async with client.connecting(connection) as api, asyncio.timeout(120):
            assert await discovery.dialect(api) == dialects.V1ALPHA2
    assert asked == [what for what, _ in ROUNDS]


def _claim(**status):
    return documents.Document(metadata=meta.ObjectMeta(name="c1"), status=status)


@pytest.mark.parametrize(
    ("dialect", "shareable", "reserved", "open_"),
    [
        (dialects.V1ALPHA2, False, [], True),
        (dialects.V1ALPHA2, False, [{"uid": "x"}], False),
        (dialects.V1ALPHA2, True, [{"uid": "x"}], True),
        (dialects.V1ALPHA3, False, [{"uid": "x"}], True),
    ],
)
def test_a_claim_is_open_to_a_further_pod_or_not(dialect, shareable, reserved, open_):
    claim = _claim(allocation={"shareable": shareable}, reservedFor=reserved)
    assert dialects.is_open(claim, dialect) is open_


def test_the_index_of_users_follows_the_pods():
    def pod(*claims):
        uses = [{"name": claim, "source": {"resourceClaimName": claim}} for claim in claims]
        return documents.Document(
            metadata=meta.ObjectMeta(name="p", namespace="n"), spec={"resourceClaims": uses}
        )

    index = users.Users()
    index.pod_changed(None, pod("c1", "c2"))
    index.pod_changed(pod("c1", "c2"), pod("c2"))
    assert not index.for_claim(("n", "c1"))
    assert set(index.for_claim(("n", "c2"))) == {("n", "p")}
    index.pod_changed(pod("c2"), None)
    assert not index.for_claim(("n", "c2"))

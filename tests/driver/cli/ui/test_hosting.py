"""The page in a cluster: each reader sees what his own token may read, and nobody else sees anything."""

import asyncio
import contextlib
import functools
import gc
import json
import logging
import socket
import ssl
import warnings
from types import SimpleNamespace

import aiohttp
import msgspec
import pytest
import yaml
from tests.scenes import waiting

from drawbar.driver.cli.ui import hosting, readers, server
from drawbar.driver.kube import client, config, kinds
from drawbar.driver.operation import certificates, gate
from drawbar.driver.operation import server as bounded
from drawbar.mocks import apiserver
from drawbar.mocks.cluster import deployment

SECONDS = 60
READER, PARTIAL, STRANGER = "team:reader", "team:partial", "team:stranger"
RBAC = {"group": "rbac.authorization.k8s.io", "version": "v1", "namespaced": False}
ROLE = kinds.Kind(**RBAC, kind="ClusterRole", plural="clusterroles")
BINDING = kinds.Kind(**RBAC, kind="ClusterRoleBinding", plural="clusterrolebindings")
FABRICS_ALONE = {"apiGroups": ["drawbar.dev"], "resources": ["fabrics"], "verbs": ["get", "list", "watch"]}


async def bind(api, user, role):
    _, _, account = user.partition(":")
    body = {
        "apiVersion": BINDING.api_version,
        "kind": BINDING.kind,
        "metadata": {"name": account},
        "roleRef": {"apiGroup": RBAC["group"], "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "team"}],
    }
    await api.create(BINDING, body, into=dict)


async def fill(api):
    """Make the roles, a Fabric and a claim."""
    await deployment.apply(api)
    role = {"apiVersion": ROLE.api_version, "kind": ROLE.kind, "metadata": {"name": "fabrics-alone"}}
    viewer = yaml.safe_load((deployment.folder() / "manifests" / "viewer-rbac.yaml").read_text())
    for body in (viewer, role | {"rules": [FABRICS_ALONE]}):
        await api.create(ROLE, body, into=dict)
    await bind(api, READER, "drawbar-viewer")
    await bind(api, PARTIAL, "fabrics-alone")
    fabric = {"metadata": {"name": "rack-1"}, "spec": {"adapter": "grpc", "endpoint": "unix:/run/f.sock"}}
    claim = {"metadata": {"name": "secret-plan"}, "spec": {"devices": {}}}
    for kind, body, namespace in ((kinds.FABRIC, fabric, None), (kinds.CLAIM, claim, "default")):
        envelope = {"apiVersion": kind.api_version, "kind": kind.kind}
        await api.create(kind, envelope | body, into=dict, namespace=namespace)


@pytest.fixture
async def hosted_page(tmp_path, monkeypatch):
    """Yield the page of a cluster, served to readers on the loopback; the number alone ends a handshake."""
    monkeypatch.setattr(gate, "Limits", functools.partial(gate.Limits, handshake_seconds=600.0))
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(apiserver.serving(profile="1.36"))
        admin = config.from_kubeconfig(cluster.kubeconfig(tmp_path / "admin", "admin"))
        api = await stack.enter_async_context(client.connecting(admin))
        await fill(api)

        def connect(token):
            return msgspec.structs.replace(admin, authorization=lambda: f"Bearer {token}", origin="a token")

        clock = waiting.Clock()
        received = await stack.enter_async_context(
            readers.receiving(connect, driver="drawbar.dev", namespace="drawbar", clock=clock)
        )
        tls = await asyncio.to_thread(certificates.make_self_signed)
        port = await stack.enter_async_context(hosting.serving(received, host="127.0.0.1", port=0, tls=tls))

        def browser():
            """Return a new HTTP session; it keeps cookies of this address."""
            jar = aiohttp.CookieJar(unsafe=True)
            connector = aiohttp.TCPConnector(ssl=False, limit=0)
            return aiohttp.ClientSession(f"https://127.0.0.1:{port}/", cookie_jar=jar, connector=connector)

        async def enter(token):
            session = await stack.enter_async_context(browser())
            async with session.post("session", json={"token": token}) as answer:
                return session, answer.status, await answer.text()

        yield SimpleNamespace(
            api=api, cluster=cluster, port=port, clock=clock, readers=received, browser=browser, enter=enter
        )


async def read_update(response):
    async with asyncio.timeout(SECONDS):
        while True:
            line = await response.content.readuntil(b"\n\n", max_size=2**24)
            assert line, "the stream has ended"
            if line.startswith(b"data: "):
                return json.loads(line.removeprefix(b"data: "))


async def test_each_reader_sees_only_objects_readable_with_their_token(hosted_page):
    whole, status, _ = await hosted_page.enter(hosted_page.cluster.token_for(READER))
    assert status == 204
    part, status, _ = await hosted_page.enter(hosted_page.cluster.token_for(PARTIAL))
    assert status == 204
    async with whole.get("updates") as of_whole, part.get("updates") as of_part:
        first, second = await read_update(of_whole), await read_update(of_part)
    assert [fabric["name"] for fabric in first["fabrics"]] == ["rack-1"]
    assert [claim["name"] for claim in first["claims"]] == ["secret-plan"]
    assert first["about"]["reader"] == "system:serviceaccount:team:reader"
    assert first["unread"] == []
    assert [fabric["name"] for fabric in second["fabrics"]] == ["rack-1"]
    assert "secret-plan" not in json.dumps(second)
    assert any("resourceclaims" in sentence for sentence in second["unread"])
    query = "explain?kind=claim&namespace=default&name=secret-plan"
    async with whole.get(query) as answer:
        assert "no pod uses the claim" in await answer.text()
    async with part.get(query) as answer:
        text = await answer.text()
        assert "cannot" in text
        assert "no pod uses the claim" not in text


@pytest.mark.parametrize(
    ("user", "status", "words"),
    [(None, 401, "does not know the token"), (STRANGER, 403, "drawbar-viewer"), ("", 401, "no bearer token")],
)
async def test_others_are_refused_with_the_reason(hosted_page, user, status, words):
    token = "forged" if user is None else user and hosted_page.cluster.token_for(user)
    session, code, text = await hosted_page.enter(token)
    assert (code, words in text) == (status, True), text
    assert not list(session.cookie_jar)
    async with session.get("updates") as answer:
        assert answer.status == 401


async def test_without_a_login_there_is_the_login_alone(hosted_page):
    async with hosted_page.browser() as session:
        for path, status in (
            ("", 200),
            ("login.js", 200),
            ("page.css", 200),
            ("healthz", 200),
            ("updates", 401),
            ("page.js", 401),
            ("explain?kind=fabric&name=rack-1", 401),
            ("session", 401),
        ):
            async with session.get(path, headers={"Cookie": f"{hosting.COOKIE}=guessed"}) as answer:
                assert (path, answer.status) == (path, status)
                assert answer.headers["Content-Security-Policy"] == server.HEADERS["Content-Security-Policy"]
                assert "rack-1" not in await answer.text()
        async with session.put("updates") as answer:
            assert answer.status == 405


async def test_a_cookie_is_for_this_server_alone_and_no_log_has_a_token(hosted_page, caplog):
    caplog.set_level(logging.DEBUG)
    token = hosted_page.cluster.token_for(READER)
    async with hosted_page.browser() as session, session.post("session", json={"token": token}) as answer:
        cookie = answer.headers["Set-Cookie"]
        for attribute in ("__Host-drawbar=", "HttpOnly", "Secure", "SameSite=Strict", "Path=/"):
            assert attribute in cookie
        assert "Domain" not in cookie
        assert token not in cookie
    assert "a reader has come" in caplog.text
    assert token not in caplog.text
    assert "secret" not in repr(connect_like(token))


def make_blind_context():
    """Return a context for TLS that takes any certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def connect_like(token):
    return config.sessions.Connection(
        server="https://x", tls=None, authorization=lambda: token, origin="a reader's token"
    )


@pytest.mark.parametrize(
    "headers",
    [{"Content-Type": "text/plain"}, {"Content-Type": "application/json", "Sec-Fetch-Site": "cross-site"}],
)
async def test_no_other_site_can_log_a_reader_in(hosted_page, headers):
    body = json.dumps({"token": hosted_page.cluster.token_for(READER)})
    async with (
        hosted_page.browser() as session,
        session.post("session", data=body, headers=headers) as answer,
    ):
        assert answer.status == 415
        assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"token": 3}', b"\xff", b'{"token": "' + b"x" * 70_000 + b'"}']
)
async def test_a_strange_login_is_refused(hosted_page, body):
    headers = {"Content-Type": "application/json"}
    async with (
        hosted_page.browser() as session,
        session.post("session", data=body, headers=headers) as answer,
    ):
        assert answer.status == 400


async def test_a_program_sends_its_token_as_a_header(hosted_page):
    headers = {"Authorization": f"Bearer {hosted_page.cluster.token_for(READER)}"}
    async with hosted_page.browser() as session:
        async with session.get("", headers=headers) as answer:
            assert "page.js" in await answer.text()
        async with session.get("", headers={"Authorization": "Bearer forged"}) as answer:
            assert answer.status == 401


async def test_a_log_out_ends_the_stream_with_an_empty_page(hosted_page):
    session, _, _ = await hosted_page.enter(hosted_page.cluster.token_for(READER))
    async with session.get("updates") as stream:
        await read_update(stream)
        async with session.delete("session") as answer:
            assert answer.status == 204
        last = await read_update(stream)
        assert last["fabrics"] == []
        async with asyncio.timeout(SECONDS):
            await stream.content.read()
    async with session.get("session") as answer:
        assert answer.status == 401


@pytest.mark.parametrize("is_bound_less", [True, False])
async def test_a_page_ends_when_a_right_is_lost_or_the_page_is_idle(hosted_page, monkeypatch, is_bound_less):
    monkeypatch.setattr(readers, "REVIEW_SECONDS", 0.05)
    session, _, _ = await hosted_page.enter(hosted_page.cluster.token_for(READER))
    if is_bound_less:
        await hosted_page.api.delete(BINDING, "reader")
    else:
        hosted_page.clock.now += readers.IDLE_SECONDS

    async def is_out():
        # This asks without a cookie's use, which would keep the page.
        return not hosted_page.readers._by_secret

    await waiting.eventually(is_out)
    async with session.get("session") as answer:
        assert answer.status == 401


async def test_there_are_no_more_readers_than_may_be(hosted_page, monkeypatch):
    monkeypatch.setattr(readers, "READERS_LIMIT", 1)
    first, _, _ = await hosted_page.enter(hosted_page.cluster.token_for(READER))
    async with first.get("updates") as stream:
        await read_update(stream)
        _, status, text = await hosted_page.enter(hosted_page.cluster.token_for(PARTIAL))
        assert (status, "1 readers have a page open" in text) == (503, True)

    async def is_closed():
        return not next(iter(hosted_page.readers._by_secret.values())).pages.streams

    await waiting.eventually(is_closed)
    # A reader whose page is not open makes room.
    _, status, _ = await hosted_page.enter(hosted_page.cluster.token_for(PARTIAL))
    assert status == 204
    async with first.get("session") as answer:
        assert answer.status == 401


def test_the_end_closes_a_connection_that_its_browser_does_not_close():
    tls = certificates.make_self_signed()

    def connect(port):
        raw = socket.create_connection(("127.0.0.1", port), SECONDS)
        browser = make_blind_context().wrap_socket(raw)
        browser.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert browser.recv(1)
        return browser

    async def serve():
        async with hosting.serving(None, host="127.0.0.1", port=0, tls=tls) as port:
            return await asyncio.to_thread(connect, port)

    with warnings.catch_warnings(record=True) as unclosed:
        warnings.simplefilter("always")
        with contextlib.closing(asyncio.run(serve())):
            gc.collect()
    assert [str(warning.message) for warning in unclosed] == []


async def test_unfinished_handshakes_are_bounded_and_keep_no_reader_out(hosted_page):
    async with contextlib.AsyncExitStack() as stack:
        opened = []
        for _ in range(server.CONNECTIONS_LIMIT + 8):
            reader, writer = await asyncio.open_connection("127.0.0.1", hosted_page.port)
            stack.callback(writer.close)
            opened.append(reader)
        async with asyncio.timeout(SECONDS / 2):
            await asyncio.gather(*(reader.read() for reader in opened[:8]))
        _, status, _ = await hosted_page.enter(hosted_page.cluster.token_for(READER))
        assert status == 204


async def test_silent_connections_keep_nobody_out(hosted_page, monkeypatch):
    context = make_blind_context()
    silent = [
        await asyncio.open_connection("127.0.0.1", hosted_page.port, ssl=context)
        for _ in range(server.CONNECTIONS_LIMIT + 8)
    ]
    session, status, _ = await hosted_page.enter(hosted_page.cluster.token_for(READER))
    assert status == 204
    # A stream outlasts the time of a request.
    monkeypatch.setattr(bounded, "REQUEST_TIMEOUT_SECONDS", 0.05)
    async with session.get("updates") as stream:
        await read_update(stream)
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*(reader.read() for reader, _ in silent))
        await hosted_page.api.delete(kinds.FABRIC, "rack-1")
        assert (await read_update(stream))["fabrics"] == []
    for _, writer in silent:
        writer.close()

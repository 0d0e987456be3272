"""Prometheus reads metrics through the proxy if the API server lets it, and nobody else does."""

import asyncio
import contextlib
import functools
import ssl
from types import SimpleNamespace

import aiohttp
import pytest
from aiohttp import web_response
from tests.scenes import waiting

from drawbar.driver.kube import client, config, errors, kinds
from drawbar.driver.operation import address, certificates, gate, metrics_proxy, server
from drawbar.mocks import apiserver

PAGE = "drawbar_controller_ready 1.0\n"
READER, STRANGER = "monitoring:prometheus", "default:stranger"
RBAC = {"group": "rbac.authorization.k8s.io", "version": "v1", "namespaced": False}
ROLE = kinds.Kind(**RBAC, kind="ClusterRole", plural="clusterroles")
BINDING = kinds.Kind(**RBAC, kind="ClusterRoleBinding", plural="clusterrolebindings")
PROXY = "drawbar:drawbar-metrics-proxy"
RULES = {
    "reader": (READER, {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}),
    "tokens": (
        PROXY,
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
    ),
    "access": (
        PROXY,
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ),
}


async def allow(api):
    """Give Prometheus and the proxy what the chart gives them."""
    for name, (user, rule) in RULES.items():
        namespace, _, account = user.partition(":")
        for kind, body in (
            (ROLE, {"rules": [rule]}),
            (
                BINDING,
                {
                    "roleRef": {"apiGroup": RBAC["group"], "kind": "ClusterRole", "name": name},
                    "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
                },
            ),
        ):
            envelope = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
            await api.create(kind, envelope | body, into=dict)


@pytest.fixture
async def ask_proxy(tmp_path, own_address, monkeypatch):
    """Yield a daemon's metrics behind the proxy: `await get(token)` returns status and text.

    The number alone ends a handshake.
    """
    monkeypatch.setattr(gate, "Limits", functools.partial(gate.Limits, handshake_seconds=600.0))
    host, port = own_address
    pages = {"/metrics": lambda: web_response.Response(text=PAGE)}
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(apiserver.serving(profile="1.36"))
        admin = config.from_kubeconfig(cluster.kubeconfig(tmp_path / "admin", "admin"))
        await allow(await stack.enter_async_context(client.connecting(admin)))
        own = config.from_kubeconfig(cluster.kubeconfig(tmp_path / "proxy", PROXY))
        api = await stack.enter_async_context(client.connecting(own))
        daemon = address.Endpoint(family=address.Family.TCP, host="127.0.0.1", port=port)
        await stack.enter_async_context(server.serving(daemon, pages))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        clock = waiting.Clock()
        judge = metrics_proxy.Judge(api=api, clock=clock)
        proxy = metrics_proxy.Proxy(judge=judge, upstream=f"http://127.0.0.1:{port}/metrics", session=session)
        handlers = server.make_handlers(proxy.handle)
        await stack.enter_async_context(handlers.serving(host, port, certificates.make_self_signed()))

        async def get(token=None, path="/metrics", method="GET"):
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            url = f"https://{host}:{port}{path}"
            async with session.request(method, url, headers=headers, ssl=False) as answer:
                return answer.status, await answer.text()

        yield SimpleNamespace(get=get, address=(host, port), cluster=cluster, judge=judge, clock=clock)


async def test_who_may_read_metrics_gets_them_and_nobody_else(ask_proxy):
    token = ask_proxy.cluster.token_for
    assert await ask_proxy.get(token(READER)) == (200, PAGE)
    status, text = await ask_proxy.get(token(STRANGER))
    assert (status, "drawbar-metrics-reader" in text) == (403, True)
    assert (await ask_proxy.get("forged"))[0] == 401
    assert (await ask_proxy.get())[0] == 401
    assert (await ask_proxy.get(token(READER), path="/readyz"))[0] == 404
    assert (await ask_proxy.get(token(READER), method="POST"))[0] == 405


async def test_unfinished_handshakes_are_bounded_and_keep_no_reader_out(ask_proxy):
    async with contextlib.AsyncExitStack() as stack:
        opened = []
        for _ in range(server.CONNECTIONS_LIMIT + 8):
            reader, writer = await asyncio.open_connection(*ask_proxy.address)
            stack.callback(writer.close)
            opened.append(reader)
        async with asyncio.timeout(30):
            await asyncio.gather(*(reader.read() for reader in opened[:8]))
        assert await ask_proxy.get(ask_proxy.cluster.token_for(READER)) == (200, PAGE)


async def test_a_caller_is_reviewed_once_a_minute(ask_proxy, monkeypatch):
    asked, create = [], ask_proxy.judge.api.create

    async def count_creation(kind, *arguments, **options):
        asked.append(kind.kind)
        return await create(kind, *arguments, **options)

    monkeypatch.setattr(ask_proxy.judge.api, "create", count_creation)
    reader = ask_proxy.cluster.token_for(READER)
    for _ in range(3):
        assert (await ask_proxy.get(reader))[0] == 200
    assert asked == ["TokenReview", "SubjectAccessReview"]
    ask_proxy.clock.now += metrics_proxy.ALLOWED_SECONDS
    assert (await ask_proxy.get(reader))[0] == 200
    assert len(asked) == 4


@pytest.mark.parametrize(
    "token", [b"\xff", b"a\x01b", b"x" * 3000, b""], ids=["bytes", "control", "long", "none"]
)
async def test_a_token_that_nobody_has_is_refused_without_a_word_in_the_log(ask_proxy, token, caplog):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(*ask_proxy.address, ssl=context)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n\r\n" % token)
    answer = await reader.read()
    writer.close()
    assert answer.split(b" ")[1] in (b"400", b"401")
    assert caplog.messages == []


async def test_a_flood_of_forged_tokens_is_forgotten_and_forgets_nobody_else(ask_proxy, monkeypatch):
    reader = ask_proxy.cluster.token_for(READER)
    assert await ask_proxy.judge.judge(reader) == 200
    for number in range(metrics_proxy.CALLERS_MAX + 5):
        assert await ask_proxy.judge.judge(f"forged-{number}") == 401
    assert len(ask_proxy.judge._refused) == metrics_proxy.CALLERS_MAX
    monkeypatch.setattr(ask_proxy.judge.api, "create", None)
    assert await ask_proxy.judge.judge(reader) == 200


async def test_without_an_api_server_nobody_gets_metrics(ask_proxy, monkeypatch):
    async def unreachable(*_arguments, **_options):
        raise errors.Unreachable("no answer")

    reader = ask_proxy.cluster.token_for(READER)
    monkeypatch.setattr(ask_proxy.judge.api, "create", unreachable)
    assert (await ask_proxy.get(reader))[0] == 503


def test_each_start_has_a_certificate_of_its_own():
    context = certificates.make_self_signed()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_pod_without_a_token_is_told_so(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert metrics_proxy.main(["--upstream", "http://127.0.0.1:1/metrics"]) == 1
    assert capsys.readouterr().err.startswith("error: metrics cannot be served: ")

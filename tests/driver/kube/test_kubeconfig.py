"""Kubeconfigs as kubectl reads them, and the logins by them, with real programs, proxies and identity providers."""

import asyncio
import base64
import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
import time

import msgspec
import pytest
import trustme
import yaml
from aiohttp import web
from tests.scenes import apiservers, waiting
from tests.scenes.apiservers import Thing
from tests.scenes.kubeconfigs import SECRET, URL, kubeconfig, text64

from drawbar.driver.kube import client, config, errors, kinds
from drawbar.driver.kube import kubeconfig as kubeconfigs

EXEC = "client.authentication.k8s.io/v1"


def write_named_kubeconfig(folder, name, *, server, user=None, **top):
    """Write a file whose context, cluster and user have that name."""
    top.setdefault("current-context", name)
    content = {
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"of-{name}"}}],
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": {"token": f"token-{name}"} if user is None else user}],
    }
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(content | top))
    return file


def test_of_several_files_the_first_current_context_wins_and_missing_ones_are_passed_over(tmp_path):
    first_file = write_named_kubeconfig(
        tmp_path / "1", "one", server="https://one", user={"tokenFile": "token"}
    )
    (tmp_path / "1" / "token").write_text("from-one")
    second_file = write_named_kubeconfig(tmp_path / "2", "two", server="https://two")
    again = write_named_kubeconfig(tmp_path / "3", "one", server="https://shadowed")
    empty = tmp_path / "empty"
    empty.write_text("")
    files = [tmp_path / "missing", empty, first_file, second_file, again]
    environ = {"KUBECONFIG": os.pathsep.join(["", *map(str, files)])}
    first = config.load(environ=environ)
    assert (first.server, first.namespace) == ("https://one", "of-one")
    assert first.authorization() == "Bearer from-one"
    second = config.load(environ=environ, context="two")
    assert (second.server, second.authorization(), second.namespace) == (
        "https://two",
        "Bearer token-two",
        "of-two",
    )


def test_a_context_cluster_and_user_may_lie_in_different_files(tmp_path, pair):
    """Paths are relative to the file in which they stand."""
    context = kubeconfig(tmp_path / "1", clusters=None, users=None)
    cluster = kubeconfig(tmp_path / "2", cluster={"server": URL, "certificate-authority": "ca"}, users=None)
    user = {"client-certificate": "cert", "client-key": "key"}
    login = kubeconfig(tmp_path / "3", clusters=None, user=user)
    for folder, name, content in (("2", "ca", pair[0]), ("3", "cert", pair[0]), ("3", "key", pair[1])):
        (tmp_path / folder / name).write_bytes(content)
    connection = config.from_kubeconfig(context, cluster, login)
    assert (connection.server, connection.tls.cert_store_stats()["x509"]) == (URL, 1)


def test_files_none_of_which_exists_are_named(tmp_path):
    with pytest.raises(errors.ConfigError, match=f"cannot read {tmp_path}/a"):
        config.load(environ={"KUBECONFIG": f"{tmp_path}/a{os.pathsep}{tmp_path}/b"})


def test_a_file_whose_name_has_a_colon_is_one_file(tmp_path):
    file = kubeconfig(tmp_path / "a:b", user={"exec": plugin(tmp_path, "echo ok")})
    assert config.load(str(file), environ={}).authorization() == "Bearer ok"


def test_a_file_may_be_a_pipe(tmp_path):
    file = kubeconfig(tmp_path)
    program = "import sys; from drawbar.driver.kube import config; print(config.load(sys.argv[1]).server)"
    words = f"exec '{sys.executable}' -c '{program}' <(cat '{file}')"
    shown = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=60, check=True)
    assert shown.stdout.strip() == URL


@pytest.mark.parametrize(
    ("cluster", "server"),
    [
        ({"server": "10.0.0.1:8080"}, "http://10.0.0.1:8080"),
        ({"server": "h:6443", "insecure-skip-tls-verify": True}, "https://h:6443"),
        ({"server": "https://rancher/k8s/clusters/c-1/"}, "https://rancher/k8s/clusters/c-1"),
    ],
)
def test_a_server_may_have_no_scheme_or_a_path(tmp_path, cluster, server):
    assert config.from_kubeconfig(kubeconfig(tmp_path, cluster=cluster)).server == server


def test_empty_fields_are_ignored(tmp_path, pair):
    (tmp_path / "ca").write_bytes(pair[0])
    cluster = {
        "server": URL,
        "certificate-authority": "ca",
        "certificate-authority-data": "",
        "proxy-url": None,
    }
    user = {"token": SECRET, "exec": None, "as": "", "as-groups": None, "tokenFile": ""}
    connection = config.from_kubeconfig(kubeconfig(tmp_path, cluster=cluster, user=user))
    assert connection.authorization() == f"Bearer {SECRET}"
    assert connection.tls.cert_store_stats()["x509"] == 1


def test_a_token_stands_in_for_its_file_until_that_can_be_read(tmp_path):
    user = {"token": "inline", "tokenFile": "token"}
    file = kubeconfig(tmp_path, user=user)
    assert config.from_kubeconfig(file).authorization() == "Bearer inline"
    (tmp_path / "token").write_text("rotated")
    assert config.from_kubeconfig(file).authorization() == "Bearer rotated"


BOMBS = {
    "aliases": "a: &a0 [x, x, x, x]\n"
    + "".join(
        f"b{n}: &a{n + 1} [*a{n}, *a{n}, *a{n}, *a{n}, *a{n}, *a{n}, *a{n}, *a{n}]\n" for n in range(30)
    )
    + "users: [{name: u, user: {token: *a30}}]\n",
    "merge-keys": "a: &a0 {x: 1}\n"
    + "".join(
        f"b{n}: &a{n + 1} {{<<: [*a{n}, *a{n}, *a{n}, *a{n}, *a{n}, *a{n}, *a{n}, *a{n}]}}\n"
        for n in range(30)
    ),
    "long-text": f"a: &a {'x' * 1_000_000}\nb: [{', '.join(['*a'] * 100)}]\n",
    "a-circle": "users: &a [{name: u, user: {token: t, x: *a}}]\n",
    "large": f"# {'x' * 17_000_000}\n",
    "nested": "[" * 100_000,
}


@pytest.mark.parametrize("case", BOMBS)
def test_a_file_that_grows_without_end_is_refused_at_once(tmp_path, case):
    file = tmp_path / "kubeconfig"
    file.write_text(BOMBS[case])
    before = time.process_time()
    with pytest.raises(errors.ConfigError, match=r"larger than 16 MiB|is not YAML"):
        config.from_kubeconfig(file)
    assert time.process_time() - before < 20


def test_the_group_and_all_else_of_another_user_are_sent(tmp_path):
    user = {"as": "jane", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"acme.com/x": ["1", "2"]}}
    assert read_impersonation_headers(
        config.from_kubeconfig(kubeconfig(tmp_path, user=user)), as_other=False
    ) == [
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-acme.com%2Fx", "1"),
        ("Impersonate-Extra-acme.com%2Fx", "2"),
    ]
    other = read_impersonation_headers(config.from_kubeconfig(kubeconfig(tmp_path, user=user)), as_other=True)
    assert other == [("Impersonate-User", "other")]


def read_impersonation_headers(connection, *, as_other):
    """Return the headers of an impersonation that a server gets."""
    got = []

    async def answer(request):
        got.extend((key, value) for key, value in request.headers.items() if key.startswith("Impersonate"))
        return web.json_response({"metadata": {"name": "n"}})

    async def ask_once():
        async with (
            apiservers.answering(answer) as url,
            client.connecting(redirect_connection(connection, url)) as api,
        ):
            await (api.acting_as("other", {}) if as_other else api).read(kinds.NODE, "n", into=Thing)

    asyncio.run(ask_once())
    return got


def redirect_connection(connection, url):
    return msgspec.structs.replace(connection, server=url, tls=None)


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def pair(authority):
    issued = authority.issue_cert("api.internal", "localhost", "127.0.0.1")
    return issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()


@contextlib.asynccontextmanager
async def tls_server(issued, answer, authority=None):
    """Yield the URL of an HTTPS server; with an authority, it demands a client certificate issued by it."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    issued.configure_cert(context)
    if authority:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    async with apiservers.answering(answer, tls=context) as url:
        yield url


async def named_by_certificate(request):
    certificate = request.transport.get_extra_info("peercert") or {}
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    return web.json_response({"metadata": {"name": names[0] if names else "anonymous"}})


def authority_of(authority):
    return text64(authority.cert_pem.bytes())


async def ask(connection):
    async with client.connecting(connection) as api:
        return (await api.read(kinds.NODE, "n", into=Thing)).metadata.name


async def load(file):
    return await asyncio.to_thread(config.from_kubeconfig, file)


async def test_a_server_is_verified_by_its_tls_server_name(tmp_path, authority):
    async with tls_server(authority.issue_cert("api.internal"), named_by_certificate) as url:
        cluster = {"server": url, "certificate-authority-data": authority_of(authority)}
        with pytest.raises(errors.Unreachable, match="certificate"):
            await ask(await load(kubeconfig(tmp_path, cluster=cluster)))
        cluster["tls-server-name"] = "api.internal"
        assert await ask(await load(kubeconfig(tmp_path, cluster=cluster))) == "anonymous"


async def pipe(reader, writer):
    with contextlib.suppress(OSError):
        while part := await reader.read(65536):
            writer.write(part)
            await writer.drain()
    writer.close()


async def connect_proxy(reader, writer, passed):
    """Serve CONNECT of HTTP."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    passed.append(head.split()[1])
    there = await asyncio.open_connection(*head.split()[1].rsplit(":", 1))
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    await asyncio.gather(pipe(reader, there[1]), pipe(there[0], writer))


async def socks_proxy(reader, writer, passed):
    """Serve SOCKS 5 (RFC 1928) without a login, for names and for IPv4 addresses."""
    _, methods = await reader.readexactly(2)
    await reader.readexactly(methods)
    writer.write(b"\x05\x00")
    *_, kind = await reader.readexactly(4)
    if kind == 3:
        host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
    else:
        host = ".".join(map(str, await reader.readexactly(4)))
    port = int.from_bytes(await reader.readexactly(2))
    passed.append(f"{host}:{port}")
    there = await asyncio.open_connection(host, port)
    writer.write(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
    await asyncio.gather(pipe(reader, there[1]), pipe(there[0], writer))


@contextlib.asynccontextmanager
async def proxying(serve):
    passed = []
    server = await asyncio.start_server(lambda *streams: serve(*streams, passed), "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", passed


@pytest.mark.parametrize(
    ("scheme", "serve"), [("http", connect_proxy), ("socks5", socks_proxy), ("socks5h", socks_proxy)]
)
async def test_the_server_is_reached_through_its_proxy(tmp_path, authority, scheme, serve):
    issued = authority.issue_cert("api.internal")
    async with tls_server(issued, named_by_certificate) as url, proxying(serve) as (address, passed):
        name = url.removeprefix("https://")
        cluster = {
            "server": url,
            "certificate-authority-data": authority_of(authority),
            "proxy-url": f"{scheme}://{address}",
            "tls-server-name": "api.internal",
        }
        assert await ask(await load(kubeconfig(tmp_path, cluster=cluster))) == "anonymous"
        assert passed == [name]


@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ({"HTTPS_PROXY": "p:1"}, "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "a.com, *.0.0.1"}, None),
        ({"HTTP_PROXY": "http://p:1"}, None),
        ({"ALL_PROXY": "socks5://p:1"}, None),
    ],
)
def test_the_proxy_of_the_environment_is_used_as_kubectl_uses_it(tmp_path, monkeypatch, variables, proxy):
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert config.from_kubeconfig(kubeconfig(tmp_path)).proxy == proxy
    local = kubeconfig(tmp_path, cluster={"server": "https://127.0.0.1:6443"})
    assert config.from_kubeconfig(local).proxy is None
    named_there = kubeconfig(tmp_path, cluster={"server": URL, "proxy-url": "http://own:1"})
    assert config.from_kubeconfig(named_there).proxy == "http://own:1"


def plugin(folder, token_command, *, seconds=None, status=None):
    """Return the configuration of a login program with a shell command's token; it counts its runs."""
    expiry = ""
    if seconds is not None:
        expiry = '"expirationTimestamp":"%s",'
    moment = f"$(date -u -d '+{seconds or 0} seconds' +%Y-%m-%dT%H:%M:%SZ)"
    status = status or f'{{{expiry}"token":"%s"}}'
    values = f'"{moment}" "$({token_command})"' if expiry else f'"$({token_command})"'
    answer = f'{{"apiVersion":"{EXEC}","kind":"ExecCredential","status":{status}}}'
    script = folder / "login"
    script.write_text(f"#!/bin/sh\necho >> {folder}/runs\nprintf '{answer}' {values}\n")
    script.chmod(0o755)
    return {"apiVersion": EXEC, "command": str(script), "args": None, "env": None}


def runs(folder):
    return len((folder / "runs").read_text())


async def test_a_credential_is_kept_until_most_of_its_life_is_over(tmp_path):
    lasting = config.from_kubeconfig(
        kubeconfig(tmp_path, user={"exec": plugin(tmp_path, "echo a", seconds=900)})
    )
    assert {lasting.authorization() for _ in range(3)} == {"Bearer a"}
    assert runs(tmp_path) == 1
    (tmp_path / "runs").unlink()
    program = plugin(tmp_path, f"wc -l < {tmp_path}/runs | tr -d ' '", seconds=6)
    short = config.from_kubeconfig(kubeconfig(tmp_path, user={"exec": program}))
    first = short.authorization()
    assert first.startswith("Bearer ")
    await waiting.eventually(lambda: short.authorization() != first)


async def test_a_login_that_cannot_be_repeated_is_unreachable_after_the_last_one_ended(tmp_path):
    program = plugin(tmp_path, "echo a", seconds=6)
    connection = config.from_kubeconfig(kubeconfig(tmp_path, user={"exec": program}))
    (tmp_path / "login").write_text("#!/bin/sh\necho expired session >&2; exit 1\n")

    def read_refusal():
        try:
            connection.authorization()
        except errors.Unreachable as error:
            return str(error)
        return ""

    await waiting.eventually(lambda: "expired session" in read_refusal())


async def test_a_credential_that_the_server_refuses_is_renewed_for_the_next_request(tmp_path):
    async def answer(request):
        is_known = request.headers["Authorization"] == "Bearer 2"
        return web.json_response({"metadata": {"name": "in"}}, status=200 if is_known else 401)

    program = plugin(tmp_path, f"wc -l < {tmp_path}/runs | tr -d ' '")
    async with apiservers.answering(answer) as url:
        connection = await load(kubeconfig(tmp_path, cluster={"server": url}, user={"exec": program}))
        with pytest.raises(errors.Denied):
            await ask(connection)
        assert await ask(connection) == "in"


async def test_the_event_loop_goes_on_while_a_program_logs_in(tmp_path):
    program = plugin(
        tmp_path, "test $(wc -l < runs) = 1 || sleep 2; echo a".replace("runs", f"{tmp_path}/runs")
    )
    connection = await load(kubeconfig(tmp_path, user={"exec": program}))
    connection.refused()
    rounds = 0
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(connection.authorize())
        while not asking.done():
            await asyncio.sleep(0.05)
            rounds += 1
    assert asking.result() == "Bearer a"
    assert rounds > 10


async def test_the_certificate_of_a_program_is_presented_and_leaves_no_file(tmp_path, authority, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    issued = authority.issue_cert("me.example")
    status = {
        "clientCertificateData": issued.cert_chain_pems[0].bytes().decode(),
        "clientKeyData": issued.private_key_pem.bytes().decode(),
    }
    answer = {"apiVersion": EXEC, "kind": "ExecCredential", "status": status}
    (tmp_path / "answer").write_text(json.dumps(answer))
    program = plugin(tmp_path, "true")
    (tmp_path / "login").write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
    served = tls_server(authority.issue_cert("127.0.0.1"), named_by_certificate, authority)
    async with served as url:
        cluster = {"server": url, "certificate-authority-data": authority_of(authority)}
        connection = await load(kubeconfig(tmp_path, cluster=cluster, user={"exec": program}))
        assert await ask(connection) == "me.example"
    assert list((tmp_path / "temporary").iterdir()) == []


def jwt(seconds):
    body = json.dumps({"exp": int(time.time()) + seconds}).encode()
    return f"e30.{base64.urlsafe_b64encode(body).decode().rstrip('=')}.e30"


class Provider:
    """An identity provider of OpenID Connect that gives a new token for a refresh token."""

    def __init__(self):
        self.token = jwt(3600)
        self.asked = []

    async def answer(self, request):
        self.asked.append(request.path)
        if request.path.endswith("openid-configuration"):
            return web.json_response({"token_endpoint": f"https://{request.host}/token"})
        form = await request.post()
        assert (form["grant_type"], form["refresh_token"]) == ("refresh_token", "old")
        tokens = {"id_token": self.token, "refresh_token": "new", "access_token": "x", "token_type": "Bearer"}
        return web.json_response(tokens)

    def user(self, url, **more):
        login = {"idp-issuer-url": url, "client-id": "drawbar", "refresh-token": "old"}
        return {"auth-provider": {"name": "oidc", "config": login | more}}


@pytest.mark.parametrize(
    "options", [{"id-token": jwt(-60), "client-secret": "s"}, {}], ids=["expired", "none"]
)
async def test_a_token_of_an_identity_provider_is_refreshed_and_kept_in_the_file(
    tmp_path, authority, options
):
    provider = Provider()
    async with tls_server(authority.issue_cert("127.0.0.1"), provider.answer) as url:
        user = provider.user(url, **options, **{"idp-certificate-authority-data": authority_of(authority)})
        file = kubeconfig(tmp_path, user=user)
        connection = await load(file)
        assert connection.authorization() == f"Bearer {provider.token}"
        kept = yaml.safe_load(file.read_text())["users"][0]["user"]["auth-provider"]["config"]
        assert (kept["id-token"], kept["refresh-token"]) == (provider.token, "new")
        asked = len(provider.asked)
        assert (await load(file)).authorization() == f"Bearer {provider.token}"
        assert len(provider.asked) == asked


async def test_an_identity_provider_that_cannot_be_verified_is_not_asked(tmp_path):
    provider = Provider()
    async with tls_server(trustme.CA().issue_cert("127.0.0.1"), provider.answer) as url:
        file = kubeconfig(tmp_path, user=provider.user(url))
        before = file.read_text()
        with pytest.raises(errors.ConfigError, match="its login failed"):
            await load(file)
        assert provider.asked == []
        assert file.read_text() == before


async def test_a_silent_identity_provider_ends_the_login_with_a_remedy(tmp_path):
    # The kernel takes the connection, and nothing reads it.
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"https://127.0.0.1:{server.getsockname()[1]}"
        file = kubeconfig(tmp_path, user=Provider().user(url))
        with pytest.raises(errors.ConfigError, match="the login took more than 1 s: try `kubectl version`"):
            await asyncio.to_thread(kubeconfigs.connect, [file], limit_seconds=1.0)


DAEMONS = ("controller", "node", "healthmonitor")


@pytest.mark.parametrize("daemon", DAEMONS)
def test_a_pod_does_not_import_the_kubeconfig_reader(tmp_path, pair, daemon):
    (tmp_path / "ca.crt").write_bytes(pair[0])
    (tmp_path / "token").write_text("t")
    program = (
        f"import sys, pathlib, drawbar.driver.{daemon}.daemon; from drawbar.driver.kube import config\n"
        "config.load(environ={'KUBERNETES_SERVICE_HOST': 'h'}, account=pathlib.Path(sys.argv[1]))\n"
        "print(*sorted({'kubernetes', 'pydantic', 'requests', 'urllib3', 'aiohttp_socks'} & set(sys.modules)))"
    )
    words = [sys.executable, "-c", program, tmp_path]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert shown.stdout == "\n"

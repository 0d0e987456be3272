"""The address of the API server and the credentials of its client: kubeconfigs and service accounts, good and bad."""

import contextlib
import ssl

import pytest
import trustme
from aiohttp import web
from tests.scenes import apiservers
from tests.scenes.apiservers import Thing
from tests.scenes.kubeconfigs import SECRET, URL, kubeconfig, text64

from drawbar.driver.kube import client, config, errors, kinds
from drawbar.mocks import apiserver
from drawbar.mocks.apiserver import listeners


@pytest.fixture(scope="module")
def pair():
    return listeners.issue_certificate()


def test_a_token_is_sent_and_stays_out_of_the_representation(tmp_path):
    connection = config.load(str(kubeconfig(tmp_path)), environ={})
    assert connection.authorization() == f"Bearer {SECRET}"
    assert connection.server == URL
    assert SECRET not in repr(connection)


def test_a_token_may_end_in_a_newline(tmp_path):
    assert config.from_kubeconfig(
        kubeconfig(tmp_path, user={"token": SECRET + "\n"})
    ).authorization() == "Bearer " + (SECRET)


def test_a_token_file_is_read_for_every_request_since_it_rotates(tmp_path):
    (tmp_path / "token").write_text("first\n")
    connection = config.from_kubeconfig(kubeconfig(tmp_path, user={"tokenFile": "token"}))
    assert connection.authorization() == "Bearer first"
    (tmp_path / "token").write_text("second\n")
    assert connection.authorization() == "Bearer second"
    (tmp_path / "token").unlink()
    with pytest.raises(errors.ConfigError, match="cannot read the token file"):
        connection.authorization()


def test_a_user_name_and_a_password_are_sent_as_basic(tmp_path):
    file = kubeconfig(tmp_path, user={"username": "me", "password": SECRET})
    assert config.from_kubeconfig(file).authorization() == "Basic " + text64(f"me:{SECRET}".encode())


def test_plain_http_needs_no_certificates(tmp_path):
    connection = config.from_kubeconfig(
        kubeconfig(tmp_path, cluster={"server": "http://127.0.0.1:8001/"}, user={})
    )
    assert (connection.server, connection.tls, connection.authorization()) == (
        "http://127.0.0.1:8001",
        None,
        None,
    )


def test_the_file_named_comes_before_the_environment_and_that_before_the_pod(tmp_path):
    file = kubeconfig(tmp_path)
    (tmp_path / "other").mkdir()
    other = kubeconfig(tmp_path / "other", cluster={"server": "http://other"})
    environ = {"KUBECONFIG": str(other), "KUBERNETES_SERVICE_HOST": "10.1.1.1"}
    assert config.load(str(file), environ=environ).server == URL
    assert config.load(environ=environ).server == "http://other"


@contextlib.asynccontextmanager
async def tls_server(pair, *, clients=None):
    """Yield the URL of an HTTPS server; its answer shows whether the client presented a certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=clients)
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(pair)

    async def answer(request):
        certificate = request.transport.get_extra_info("peercert")
        return web.json_response(
            {
                "metadata": {
                    "name": "certified" if certificate else "anonymous",
                    "labels": dict(request.headers),
                }
            }
        )

    async with apiservers.answering(answer, tls=context) as url:
        yield url


async def ask(connection):
    async with client.connecting(connection) as api:
        return (await api.read(kinds.NODE, "n", into=Thing)).metadata


@pytest.mark.parametrize("form", ["data", "files"])
async def test_a_client_certificate_is_presented_and_leaves_no_file_behind(tmp_path, monkeypatch, pair, form):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    chain, key = pair
    (tmp_path / "chain.pem").write_bytes(chain + key)
    (tmp_path / "cert.pem").write_bytes(chain)
    (tmp_path / "key.pem").write_bytes(key)
    async with tls_server(tmp_path / "chain.pem", clients=tmp_path / "cert.pem") as url:
        if form == "data":
            cluster = {"server": url, "certificate-authority-data": text64(chain)}
            user = {"client-certificate-data": text64(chain), "client-key-data": text64(key)}
        else:
            cluster = {"server": url, "certificate-authority": "cert.pem"}
            user = {"client-certificate": "cert.pem", "client-key": "key.pem"}
        connection = config.from_kubeconfig(kubeconfig(tmp_path, cluster=cluster, user=user))
        assert (await ask(connection)).name == "certified"
    assert list((tmp_path / "temporary").iterdir()) == []


async def test_a_server_of_another_authority_is_not_trusted_unless_configured(tmp_path, pair):
    (tmp_path / "chain.pem").write_bytes(pair[0] + pair[1])
    async with tls_server(tmp_path / "chain.pem") as url:
        stranger = config.from_kubeconfig(kubeconfig(tmp_path, cluster={"server": url}))
        with pytest.raises(errors.Unreachable, match="certificate") as refused:
            await ask(stranger)
        assert SECRET not in str(refused.value)
        careless = config.from_kubeconfig(
            kubeconfig(tmp_path, cluster={"server": url, "insecure-skip-tls-verify": True})
        )
        assert (await ask(careless)).name == "anonymous"


async def test_a_pod_reaches_the_api_server_with_its_service_account(tmp_path):
    async with apiserver.serving(tls=True) as server:
        (tmp_path / "ca.crt").write_bytes(server.certificate)
        (tmp_path / "token").write_text(server.token_for())
        host, _, port = server.url.removeprefix("https://").partition(":")
        connection = config.load(
            environ={"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}, account=tmp_path
        )
        async with client.connecting(connection) as api:
            assert (await api.read(kinds.NAMESPACE, "default", into=Thing)).metadata.name == "default"


async def test_a_pod_trusts_a_cluster_whose_authority_is_an_intermediate_one(tmp_path):
    cluster = trustme.CA().create_child_ca()
    (tmp_path / "ca.crt").write_bytes(cluster.cert_pem.bytes())
    (tmp_path / "token").write_text("t")
    cluster.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "pair")
    async with tls_server(tmp_path / "pair") as url:
        host, _, port = url.removeprefix("https://").partition(":")
        connection = config.load(
            environ={"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}, account=tmp_path
        )
        assert (await ask(connection)).name == "anonymous"
    assert not connection.tls.verify_flags & ssl.VERIFY_X509_STRICT


def test_an_address_of_ipv6_stands_in_brackets(tmp_path, pair):
    (tmp_path / "ca.crt").write_bytes(pair[0])
    (tmp_path / "token").write_text("t")
    assert (
        config.from_service_account(tmp_path, {"KUBERNETES_SERVICE_HOST": "fd00::1"}).server
        == "https://[fd00::1]:443"
    )


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_a_pod_without_a_service_account_is_told_the_mount(tmp_path, pair, missing):
    (tmp_path / "ca.crt").write_bytes(pair[0])
    (tmp_path / "token").write_text("t")
    (tmp_path / missing).unlink()
    with pytest.raises(errors.ConfigError, match="mount a token of the service account"):
        config.load(environ={"KUBERNETES_SERVICE_HOST": "h"}, account=tmp_path)


def test_a_broken_authority_of_the_service_account_is_named(tmp_path):
    (tmp_path / "ca.crt").write_text("no certificate")
    (tmp_path / "token").write_text("t")
    with pytest.raises(errors.ConfigError, match=r"ca\.crt holds no usable certificate"):
        config.load(environ={"KUBERNETES_SERVICE_HOST": "h"}, account=tmp_path)


def test_a_missing_configuration_is_reported_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(errors.ConfigError, match="--kubeconfig"):
        config.load(environ={})


def test_the_default_file_is_used_where_nothing_else_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path).rename(tmp_path / ".kube" / "config")
    assert config.load(environ={}).server == URL


MALFORMED = {
    "contexts-are-a-number": ({"contexts": 5}, "malformed: Expected `array`, got `int` - at `$.contexts`"),
    "contexts-are-a-mapping": ({"contexts": {"here": {}}}, "malformed: Expected `array`"),
    "no-current-context": ({"current-context": None}, "no current-context"),
    "context-names-another-cluster": (
        {"contexts": [{"name": "here", "context": {"cluster": "x"}}]},
        "Expected object with name x in",
    ),
    "context-names-another-user": (
        {"contexts": [{"name": "here", "context": {"cluster": "c", "user": "x"}}]},
        "no user named 'x'",
    ),
    "no-server": ({"cluster": {}}, "missing required field `server`"),
    "server-is-a-number": ({"cluster": {"server": 5}}, "Expected `str`, got `int` - at `$.server`"),
    "server-has-another-scheme": ({"cluster": {"server": "ftp://10.0.0.1"}}, "no server URL"),
    "server-has-no-host": ({"cluster": {"server": "https://"}}, "no server URL"),
    "server-has-half-an-address": ({"cluster": {"server": "https://[fd00::1"}}, "no server URL"),
    "server-has-an-absurd-port": ({"cluster": {"server": "https://h:99999"}}, "no server URL"),
    "authority-is-absent": (
        {"cluster": {"server": URL, "certificate-authority": "none"}},
        "File does not exist: ",
    ),
    "authority-is-no-base64": (
        {"cluster": {"server": URL, "certificate-authority-data": "***"}},
        "certificate-authority is not a certificate",
    ),
    "authority-is-no-certificate": (
        {"cluster": {"server": URL, "certificate-authority-data": text64(b"\xff")}},
        "certificate-authority is not a certificate",
    ),
    "authority-is-a-number": (
        {"cluster": {"server": URL, "certificate-authority-data": 5}},
        "got `int` - at `$.certificate-authority-data`",
    ),
    "certificate-without-key": (
        {"user": {"client-certificate-data": text64(b"x")}},
        "client-certificate and client-key need each other",
    ),
    "key-without-certificate": ({"user": {"client-key-data": text64(SECRET.encode())}}, "need each other"),
    "key-is-no-key": (
        {
            "user": {
                "client-certificate-data": text64(b"x"),
                "client-key-data": text64(SECRET.encode()),
            }
        },
        "client-certificate and client-key are unusable",
    ),
    "key-is-no-base64": (
        {"user": {"client-certificate-data": text64(b"x"), "client-key-data": f"{SECRET}!"}},
        "login failed (Error)",
    ),
    "key-file-is-absent": (
        {"user": {"client-certificate-data": text64(b"x"), "client-key": "none"}},
        "File does not exist: ",
    ),
    "token-is-a-list": ({"user": {"token": [SECRET]}}, "got `array` - at `$.token`"),
    "token-has-a-line-break": ({"user": {"token": f"{SECRET}\r\nHost: x"}}, "the token is empty, or holds"),
    "token-has-umlauts": ({"user": {"token": f"{SECRET}ä"}}, "the token is empty, or holds"),
    "token-file-is-a-number": ({"user": {"tokenFile": 5}}, "got `int` - at `$.tokenFile`"),
    "groups-without-a-user-to-act-as": ({"user": {"token": SECRET, "as-groups": ["g"]}}, "without as"),
    "acting-as-two-lines": ({"user": {"token": SECRET, "as": "a\r\nb: c"}}, "cannot be sent"),
    "proxy": (
        {"cluster": {"server": URL, "proxy-url": f"ftp://me:{SECRET}@p"}},
        "proxy-url is not the URL of a proxy",
    ),
    "exec-is-a-number": ({"user": {"exec": 5}}, "got `int` - at `$.exec`"),
    "exec-program-is-absent": (
        {
            "user": {
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "command": "/nonexistent/login",
                    "interactiveMode": "Never",
                }
            }
        },
        "the login program /nonexistent/login is not installed: install it",
    ),
    "exec-without-command": (
        {"user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}},
        "missing required field `command` - at `$.exec`",
    ),
    "provider-that-gives-no-token": (
        {"user": {"auth-provider": {"name": "azure"}}},
        "the login by the auth-provider azure gave no token",
    ),
    "provider-without-its-address": (
        {"user": {"auth-provider": {"name": "oidc", "config": {"client-secret": SECRET}}}},
        "Expected key idp-issuer-url in",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_kubeconfig_is_one_sentence_without_its_secrets(tmp_path, case):
    changes, words = MALFORMED[case]
    file = kubeconfig(tmp_path, **changes)
    with pytest.raises(errors.ConfigError) as refused:
        config.from_kubeconfig(file)
    message = str(refused.value)
    assert words in message
    assert str(file) in message
    assert SECRET not in message
    assert "\n" not in message
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"{token: " + SECRET.encode(), "is not YAML", id="torn"),
        pytest.param(b"\xff\xfe\x00", "is not YAML", id="binary"),
        pytest.param(b"- " + SECRET.encode(), "not a mapping", id="a-list"),
        pytest.param(b"", "no current-context", id="empty"),
        pytest.param(None, "cannot read", id="absent"),
    ],
)
def test_an_invalid_kubeconfig_is_refused_without_its_secret(tmp_path, content, words):
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(errors.ConfigError, match=words) as refused:
        config.load(str(file), environ={})
    assert SECRET not in str(refused.value)


def test_a_directory_is_no_kubeconfig(tmp_path):
    with pytest.raises(errors.ConfigError, match="Is a directory"):
        config.load(str(tmp_path), environ={})


@pytest.mark.parametrize("content", [b"", b"two words", b"\xff\xfe", b"a\nb"])
def test_a_token_file_without_a_token_is_refused_before_use(tmp_path, content):
    (tmp_path / "token").write_bytes(content)
    connection = config.from_kubeconfig(kubeconfig(tmp_path, user={"tokenFile": "token"}))
    with pytest.raises(errors.ConfigError, match="token"):
        connection.authorization()

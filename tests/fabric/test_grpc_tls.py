"""A plugin over the network: both sides show certificates, and each thing that can be wrong with them has its sentence."""

import dataclasses
import datetime
import socket
from contextlib import AsyncExitStack

import pytest
import trustme

from drawbar.fabric import conformance, contract, errors
from drawbar.fabric.grpc import certificates, server
from drawbar.fabric.grpc.adapter import GrpcAdapter
from drawbar.mocks.fabric import SimulatedFabric, configuration

DESCRIBED = configuration.parse(
    b"""{"hosts": [{"id": "h1", "ports": 2}, {"id": "h2", "ports": 2},
    {"id": "h3"}], "enclosures": [{"id": "e", "hosts": ["h1", "h2"], "devices": [
        {"id": "d1", "class": "gpu", "model": "A", "vendor": "V"}, {"id": "d2", "class": "nvme", "model": "B"},
        {"id": "m1", "class": "cxl-memory", "model": "C", "memoryBytes": 4096, "sliceStepBytes": 1024}]}]}"""
)
PAST = {
    "not_before": datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
    "not_after": datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC),
}


def pem(certificate):
    return b"".join(blob.bytes() for blob in certificate.cert_chain_pems), certificate.private_key_pem.bytes()


class Site:
    """A plugin, its authority, and adapters to it."""

    def __init__(self, stack, folder):
        self._stack = stack
        self.authority, self.stranger = trustme.CA(), trustme.CA()
        self.files = certificates.ServerFiles(
            certificate=folder / "tls.crt", key=folder / "tls.key", authority=folder / "ca.crt"
        )

    def write(self, certificate):
        """Replace the plugin's certificate."""
        chain, key = pem(certificate)
        self.files.certificate.write_bytes(chain)
        self.files.key.write_bytes(key)

    async def serve(self, certificate=None):
        self.authority.cert_pem.write_to_path(self.files.authority)
        self.write(certificate or self.authority.issue_cert("localhost", "127.0.0.1"))
        self.fabric = await self._stack.enter_async_context(SimulatedFabric.running(DESCRIBED))
        return await self._stack.enter_async_context(
            server.serving(
                self.fabric,
                "tls://127.0.0.1:0",
                name="test",
                version="1",
                configure=self.fabric.configure,
                files=self.files,
            )
        )

    def config(self, endpoint, *, shown=None, trusted=None, **changes):
        chain, key = pem(shown or self.authority.issue_cert("drawbar.example"))
        credentials = contract.Credentials(
            authority=(trusted or self.authority).cert_pem.bytes().decode(),
            certificate=chain.decode(),
            key=key.decode(),
        )
        return contract.AdapterConfig(
            name="rack", endpoint=endpoint, credentials=credentials, **({"timeout_seconds": 20} | changes)
        )

    async def connect(self, config):
        return await self._stack.enter_async_context(await GrpcAdapter.connect(config))


@pytest.fixture
async def site(tmp_path):
    async with AsyncExitStack() as stack:
        yield Site(stack, tmp_path)


async def test_the_contract_is_kept_over_mutual_tls(site):
    adapter = await site.connect(site.config(await site.serve()))
    report = await conformance.check(adapter, check_seconds=20)
    assert [(outcome.name, outcome.detail) for outcome in report.failed + report.skipped] == []


async def test_the_key_of_the_connection_is_not_sent_to_the_plugin(site):
    config = site.config(await site.serve())
    recorded = []
    config = dataclasses.replace(config, credentials=dataclasses.replace(config.credentials, token="word"))
    async with AsyncExitStack() as stack:
        endpoint = await stack.enter_async_context(
            server.serving(
                site.fabric,
                "tls://127.0.0.1:0",
                name="test",
                version="1",
                configure=_make_credentials_recorder(recorded),
                files=site.files,
            )
        )
        await site.connect(dataclasses.replace(config, endpoint=endpoint))
    assert [credentials.present_parts for credentials in recorded] == [("token",)]


def _make_credentials_recorder(recorded):
    async def take(credentials, tls):
        assert tls == contract.Tls()
        recorded.append(credentials)

    return take


@pytest.mark.parametrize(
    ("wrong", "reason", "words"),
    [
        ("authority", "CERTIFICATE_REFUSED", "ca.crt"),
        ("expired", "CERTIFICATE_REFUSED", "expired"),
        ("name", "CERTIFICATE_REFUSED", "serverName"),
        ("client", "TLS_REFUSED", "tls.crt"),
        ("expired client", "TLS_REFUSED", "tls.crt"),
    ],
)
async def test_a_wrong_certificate_is_one_sentence_with_the_remedy(site, wrong, reason, words):
    own = {
        "expired": lambda: site.authority.issue_cert("127.0.0.1", **PAST),
        "name": lambda: site.authority.issue_cert("elsewhere.example"),
    }
    endpoint = await site.serve(own[wrong]() if wrong in own else None)
    shown = {
        "client": lambda: site.stranger.issue_cert("drawbar.example"),
        "expired client": lambda: site.authority.issue_cert("drawbar.example", **PAST),
    }
    config = site.config(
        endpoint,
        shown=shown[wrong]() if wrong in shown else None,
        trusted=site.stranger if wrong == "authority" else None,
    )
    with pytest.raises(errors.Unavailable) as raised:
        await site.connect(config)
    assert raised.value.reason == reason
    assert words in raised.value.message
    assert config.credentials.key not in raised.value.message


async def test_another_name_in_the_certificate_can_be_expected(site):
    endpoint = await site.serve(site.authority.issue_cert("elsewhere.example"))
    adapter = await site.connect(site.config(endpoint, tls=contract.Tls(server_name="elsewhere.example")))
    assert (await adapter.devices()).device("d1") is not None


async def test_a_server_without_tls_is_refused(site, tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
    plain = server.grpc.aio.server()
    plain.add_insecure_port(f"127.0.0.1:{port}")
    await plain.start()
    try:
        with pytest.raises(errors.Unavailable) as raised:
            await site.connect(site.config(f"tls://127.0.0.1:{port}"))
    finally:
        await plain.stop(0)
    assert raised.value.reason == "TLS_REFUSED"


async def test_a_silent_server_fails_at_the_deadline(site):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        endpoint = f"tls://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises((errors.DeadlineExceeded, errors.Unavailable)):
            await site.connect(site.config(endpoint, timeout_seconds=1))


async def test_a_renewed_certificate_is_shown_to_the_next_connection(site):
    endpoint = await site.serve(site.authority.issue_cert("127.0.0.1", **PAST))
    config = site.config(endpoint)
    with pytest.raises(errors.Unavailable):
        await site.connect(config)
    site.write(site.authority.issue_cert("127.0.0.1"))
    adapter = await site.connect(config)
    assert (await adapter.devices()).device("d1") is not None


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("tls://fabric.example", "write tls://HOST:PORT"),
        ("tls://fabric.example:1/path", "write tls://HOST:PORT"),
        ("tls://:1", "write tls://HOST:PORT"),
        ("tls://fabric.example:99999", "write tls://HOST:PORT"),
        ("tls://user:secret@fabric.example:1", "put these into the Fabric's Secret"),
        ("tcp://fabric.example:1", "tls://HOST:PORT"),
    ],
)
def test_an_endpoint_that_cannot_be_used_is_refused_without_quoting_secrets(site, endpoint, words):
    with pytest.raises(errors.InvalidConfiguration) as raised:
        GrpcAdapter.validate(site.config(endpoint))
    assert words in str(raised.value)
    assert "secret" not in str(raised.value).replace("Secret", "")


def test_without_certificates_there_is_no_connection(site):
    config = site.config("tls://fabric.example:1")
    for credentials, tls, words in (
        (contract.Credentials(), contract.Tls(), "no ca.crt, tls.crt, tls.key"),
        (config.credentials, contract.Tls(verify=False), "always verified"),
    ):
        with pytest.raises(errors.InvalidConfiguration, match=words):
            GrpcAdapter.validate(dataclasses.replace(config, credentials=credentials, tls=tls))


async def test_a_plugin_needs_its_files_and_only_over_the_network(site, tmp_path):
    async with SimulatedFabric.running(DESCRIBED) as fabric:
        for endpoint, files in (
            ("tls://127.0.0.1:0", None),
            (f"unix:{tmp_path}/s", site.files),
            ("tls://127.0.0.1:0", site.files),
        ):
            with pytest.raises(errors.InvalidConfiguration):
                async with server.serving(fabric, endpoint, name="n", version="1", files=files):
                    pass

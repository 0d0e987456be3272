"""Credentials: problems are reported without quoting them, and plugins get them over the socket alone."""

import asyncio
import json
import ssl
import urllib.parse

import pytest
import trustme

from drawbar.fabric import contract, errors, tls
from drawbar.fabric.grpc import server
from drawbar.fabric.grpc.adapter import GrpcAdapter
from drawbar.mocks.apiserver import listeners
from drawbar.mocks.fabric import SimulatedFabric, configuration

DESCRIBED = b"""{"hosts": [{"id": "h1"}], "token": "s3cret-t0ken",
 "enclosures": [{"id": "e", "devices": [{"id": "d1", "class": "gpu"}]}]}"""
RIGHT = contract.Credentials(token="s3cret-t0ken")


@pytest.fixture(scope="module")
def pairs():
    """Return two certificates with their keys, as PEM."""
    return [[pem.decode() for pem in listeners.issue_certificate(name)] for name in ("manager", "other")]


def test_half_a_pair_is_told():
    assert tls.problems(contract.Credentials(username="u")) == (
        "there is a username and no password; give both or none",
    )
    assert len(tls.problems(contract.Credentials(password="p", key="k"))) == 2


def test_pem_that_is_none_is_told_without_quoting_it(pairs):
    certificate, key = pairs[0]
    wrong = contract.Credentials(authority="hunter2", certificate=certificate, key=pairs[1][1])
    problems = tls.problems(wrong)
    assert len(problems) == 2
    assert "hunter2" not in str(problems)
    assert not any(line in str(problems) for line in key.splitlines())
    assert len(tls.problems(contract.Credentials(certificate="x", key="y"))) == 1


async def test_a_context_made_from_memory_speaks_to_its_manager_and_to_no_other(pairs):
    (certificate, key), (other, _) = pairs
    own = contract.Credentials(authority=certificate, certificate=certificate, key=key)
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listening.verify_mode = ssl.CERT_REQUIRED
    listening.load_verify_locations(cadata=certificate)
    presented = tls.context(own, contract.Tls())
    assert presented.verify_mode is ssl.CERT_REQUIRED

    with_files = ssl.create_default_context(cadata=certificate)
    assert with_files.cert_store_stats() == presented.cert_store_stats(), "only its own authority is trusted"
    _load(listening, certificate, key)
    handshake(presented, listening)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tls.context(contract.Credentials(authority=other), contract.Tls()), listening)
    handshake(
        tls.context(
            contract.Credentials(authority=other, certificate=certificate, key=key),
            contract.Tls(verify=False),
        ),
        listening,
    )


def test_an_intermediate_authority_is_enough_to_trust_a_manager():
    authority = trustme.CA().create_child_ca()
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("manager").configure_cert(listening)
    trusting = tls.context(
        contract.Credentials(authority=authority.cert_pem.bytes().decode()), contract.Tls()
    )
    handshake(trusting, listening)
    assert not trusting.verify_flags & ssl.VERIFY_X509_STRICT


def handshake(client, listening):
    """Shake hands in memory; raise what either side raises."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(back, there, server_hostname="manager")
    answering = listening.wrap_bio(there, back, server_side=True)
    done = set()
    while len(done) < 2:
        for side in (asking, answering):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                continue


def _load(context, certificate, key):
    """Load the server's own pair in the same way as a client's."""
    assert tls._present(context, contract.Credentials(certificate=certificate, key=key)) == []


def test_secret_parts_are_taken_out_of_foreign_text(pairs):
    credentials = contract.Credentials(username="admin", password="hunter2", token="t0ken", key=pairs[0][1])
    line = pairs[0][1].splitlines()[1]
    assert credentials.redact(f"401 for admin:hunter2, t0ken, {line}") == (
        "401 for admin:[redacted], [redacted], [redacted]"
    )


@pytest.mark.parametrize("spell", [json.dumps, urllib.parse.quote, urllib.parse.quote_plus, str])
def test_a_password_is_taken_out_in_each_spelling_of_a_request(spell):
    password = 'a "key"\\ & wörd'
    shown = contract.Credentials(username="u", password=password).redact(f"got {spell(password)}.")
    assert shown.replace('"', "") == "got [redacted]."


# --- over the socket ---


@pytest.fixture
async def sidecar(tmp_path):
    """Run a fabric; yield it, an endpoint for its plugin and a function that returns the configuration."""
    endpoint = f"unix:{tmp_path}/f.sock"

    def config(credentials=RIGHT, **changes):
        return contract.AdapterConfig(name="rack-7", endpoint=endpoint, credentials=credentials, **changes)

    async with SimulatedFabric.running(configuration.parse(DESCRIBED)) as fabric:
        yield fabric, endpoint, config


def serve_fabric(fabric, endpoint, *, takes=True):
    return server.serving(
        fabric, endpoint, name="t", version="1", configure=fabric.configure if takes else None
    )


async def test_a_plugin_gets_credentials_and_tls_settings_first(sidecar):
    fabric, endpoint, config = sidecar
    asked = contract.Tls(verify=False, server_name="rack-7.example")
    async with serve_fabric(fabric, endpoint), await GrpcAdapter.connect(config(tls=asked)) as adapter:
        assert (await adapter.devices()).device("d1") is not None
    assert fabric.door.tls == asked


@pytest.mark.parametrize("credentials", [contract.Credentials(token="wrong"), contract.Credentials()])
async def test_wrong_or_no_credentials_are_unauthenticated(sidecar, credentials):
    fabric, endpoint, config = sidecar
    async with serve_fabric(fabric, endpoint), await GrpcAdapter.connect(config(credentials)) as adapter:
        with pytest.raises(errors.Unauthenticated):
            await adapter.devices()


async def test_a_plugin_that_lost_its_credentials_gets_them_again(sidecar):
    _, endpoint, config = sidecar
    described = configuration.parse(DESCRIBED)
    async with SimulatedFabric.running(described) as before, serve_fabric(before, endpoint):
        adapter = await GrpcAdapter.connect(config())
    async with adapter, SimulatedFabric.running(described) as after, serve_fabric(after, endpoint):
        async with asyncio.timeout(120):
            while True:
                try:
                    inventory = await adapter.devices()
                    break
                except errors.Unavailable:
                    await asyncio.sleep(0.02)
        assert inventory.device("d1") is not None


async def test_configured_credentials_are_refused_if_the_plugin_takes_none(sidecar):
    fabric, endpoint, config = sidecar
    async with serve_fabric(fabric, endpoint, takes=False):
        with pytest.raises(errors.InvalidConfiguration, match="takes no credentials"):
            await GrpcAdapter.connect(config())
        await (await GrpcAdapter.connect(config(contract.Credentials()))).close()


async def test_credentials_that_cannot_be_right_are_refused_by_both_ends(sidecar):
    fabric, endpoint, config = sidecar
    half = contract.Credentials(certificate="hunter2")
    with pytest.raises(errors.InvalidConfiguration):
        GrpcAdapter.validate(config(half))
    async with serve_fabric(fabric, endpoint), await GrpcAdapter.connect(config()) as adapter:
        adapter._config = config(half)
        with pytest.raises(errors.InvalidArgument) as caught:
            await adapter._configure()
    assert "hunter2" not in str(caught.value)

"""The webhook over HTTPS: its answers, its bounds, and a certificate that is renewed while it runs."""

import asyncio
import contextlib
import io
import json
import os
import ssl
import subprocess
import sys

import aiohttp
import pytest

from drawbar.driver import errors, main
from drawbar.driver.operation import certificates, gate
from drawbar.driver.webhook import daemon, settings
from drawbar.mocks.apiserver import listeners

PARAMETERS = {"apiVersion": "drawbar.dev/v1alpha1", "kind": "DeviceParameters", "colour": "red"}


def question():
    opaque = {"driver": "drawbar.dev", "parameters": PARAMETERS}
    request = {
        "uid": "u1",
        "kind": {"group": "resource.k8s.io", "version": "v1", "kind": "DeviceClass"},
        "operation": "CREATE",
        "object": {"spec": {"config": [{"opaque": opaque}]}},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


class Pair:
    """A certificate and its key, as files that are renewed."""

    def __init__(self, folder):
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.renew()

    def renew(self, *, whole=True):
        self.text, key = listeners.issue_certificate()
        self.certificate.write_bytes(self.text)
        if whole:
            self.key.write_bytes(key)
        self._next = key

    def finish(self):
        self.key.write_bytes(self._next)

    @property
    def binary(self):
        first, _, _ = self.text.partition(ssl.PEM_FOOTER.encode())
        return ssl.PEM_cert_to_DER_cert(first.decode() + ssl.PEM_FOOTER)

    @property
    def trust(self):
        return ssl.create_default_context(cadata=self.text.decode())


@pytest.fixture
def pair(tmp_path):
    return Pair(tmp_path)


@contextlib.asynccontextmanager
async def serving_webhook(pair, **bounds):
    held = certificates.Certificates(pair.certificate, pair.key, pause_seconds=0.02)
    context = await held.load()
    listen = settings.Listen(port=0)
    async with daemon.serving("drawbar.dev", listen, context, daemon.Bounds(**bounds)) as port:
        following = asyncio.Task(held.follow())
        try:
            yield port, held
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following


@contextlib.asynccontextmanager
async def connecting(port, host="127.0.0.1"):
    anything = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anything.check_hostname, anything.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(host, port, ssl=anything)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def read_certificate(port, host="127.0.0.1"):
    """Return the certificate that a new connection is shown."""
    async with connecting(port, host) as (_, writer):
        return writer.get_extra_info("ssl_object").getpeercert(binary_form=True)


async def test_it_answers_over_https(pair):
    async with (
        serving_webhook(pair) as (port, _),
        aiohttp.ClientSession(f"https://localhost:{port}") as client,
    ):
        async with client.post("/validate?timeout=5s", json=question(), ssl=pair.trust) as response:
            assert (response.status, response.content_type) == (200, "application/json")
            reported = (await response.json())["response"]
        assert (reported["uid"], reported["allowed"]) == ("u1", False)
        assert reported["status"]["message"].startswith(
            "spec.config[0].opaque.parameters.colour is not a field"
        )
        async with client.get("/healthz", ssl=pair.trust) as response:
            assert response.status == 200


async def test_an_invalid_review_is_a_bad_request_and_a_long_one_unread(pair):
    async with (
        serving_webhook(pair) as (port, _),
        aiohttp.ClientSession(f"https://localhost:{port}") as client,
    ):
        async with client.post("/validate", data=b"[", ssl=pair.trust) as response:
            assert response.status == 400
            assert "this is no AdmissionReview" in await response.text()
        long = io.BytesIO(b" " * (daemon.BODY_BYTES + 1))
        async with client.post("/validate", data=long, ssl=pair.trust) as response:
            assert response.status == 413
        async with client.get("/", ssl=pair.trust) as response:
            assert response.status == 404


# A question of which nothing but the head is sent.
BEGUN = b"POST /validate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 9\r\n\r\n"


async def test_a_slow_client_keeps_no_other_out(pair):
    async with (
        serving_webhook(pair, at_once=1, read_seconds=60) as (port, _),
        aiohttp.ClientSession(f"https://localhost:{port}") as client,
        connecting(port) as (reader, writer),
    ):
        writer.write(BEGUN)
        async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
            refused = tasks.create_task(reader.readline())
            # The head may be read later than a question or two.
            while not refused.done():
                async with client.post("/validate", json=question(), ssl=pair.trust) as response:
                    assert response.status == 200
        assert b" 408 " in refused.result()


async def test_callers_that_do_not_finish_their_handshake_keep_no_question_out(pair):
    async with (
        serving_webhook(pair, connections=gate.Limits(connections=8)) as (port, _),
        contextlib.AsyncExitStack() as stack,
    ):
        silent = []
        for _ in range(40):
            silent.append(await asyncio.open_connection("127.0.0.1", port))
            stack.callback(silent[-1][1].transport.abort)
        async with aiohttp.ClientSession(f"https://localhost:{port}") as client:
            for _ in range(3):
                async with client.post("/validate", json=question(), ssl=pair.trust) as response:
                    assert response.status == 200
        # Those beyond the bound were hung up on.
        for reader, _ in silent[:30]:
            async with asyncio.timeout(3):
                assert await reader.read() == b""


async def test_who_does_not_send_is_let_go(pair):
    async with serving_webhook(pair, read_seconds=0.02) as (port, _), connecting(port) as (reader, writer):
        writer.write(BEGUN)
        assert b" 408 " in await reader.readline()
        # It waits a while for the rest before it closes, so that the answer is not lost.
        writer.write(b" " * 9)
        async with asyncio.timeout(120):
            await reader.read()
    for sent in (b"", BEGUN[:30]):
        async with (
            serving_webhook(pair, idle_seconds=0.02) as (port, _),
            connecting(port) as (reader, writer),
        ):
            writer.write(sent)
            async with asyncio.timeout(120):
                assert await reader.read() == b""


async def test_a_certificate_is_read_once_for_the_start_so_that_no_renewal_comes_between(pair):
    """The key file is a pipe for the fingerprint, then one for the pair, then another key."""
    key = pair.key.read_bytes()
    pipes = [pair.key.with_name(name) for name in ("first", "second")]
    other = pair.key.with_name("other")
    other.write_bytes(listeners.issue_certificate()[1])
    for pipe in pipes:
        os.mkfifo(pipe)
    pipes[0].replace(pair.key)

    def feed():
        for following in (pipes[1], other):
            with pair.key.open("wb") as pipe:
                pipe.write(key)
                # Reading does not end before this is closed.
                following.replace(pair.key)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.to_thread(feed))
        context = await certificates.Certificates(pair.certificate, pair.key).load()
    async with daemon.serving("drawbar.dev", settings.Listen(port=0), context) as port:
        assert await read_certificate(port) == pair.binary


async def test_a_renewed_certificate_is_served_and_half_of_one_is_not(pair, until):
    async with serving_webhook(pair) as (port, held):
        old = pair.binary
        assert await read_certificate(port) == old
        pair.renew(whole=False)
        with pytest.raises(errors.UsageError):
            await held.look()
        assert await read_certificate(port) == old
        pair.finish()
        await until(lambda: read_certificate(port), lambda value: value == pair.binary)


@pytest.mark.parametrize("fault", ["no certificate", "no key", "no pair", "no pem"])
async def test_an_unusable_certificate_is_reported_at_the_start(pair, fault):
    if fault == "no certificate":
        pair.certificate.unlink()
    elif fault == "no key":
        pair.key.unlink()
    elif fault == "no pair":
        pair.renew(whole=False)
    else:
        pair.certificate.write_text("hello")
    options = settings.Settings(tls=settings.Tls(certificate=pair.certificate, key=pair.key))
    with pytest.raises(errors.UsageError) as caught:
        await daemon.run(options)
    assert str(pair.key if fault == "no key" else pair.certificate) in str(caught.value)


async def test_the_daemon_serves_until_its_signal_and_reports_a_port_that_is_taken(pair, own_address, until):
    host, port = own_address
    listen = settings.Listen(address=host, port=port)
    options = settings.Settings(listen=listen, tls=settings.Tls(certificate=pair.certificate, key=pair.key))
    running = asyncio.Task(daemon.run(options))

    async def answers():
        with contextlib.suppress(ConnectionRefusedError):
            return await read_certificate(port, host)

    assert await until(answers, bool) == pair.binary
    with pytest.raises(errors.DrawbarError, match="choose another by --listen-address"):
        await daemon.run(options)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_settings_that_cannot_be_are_all_named():
    wrong = settings.Settings(driver="No", listen=settings.Listen(address="here", port=70_000))
    assert [problem.split()[0] for problem in settings.problems(wrong)] == [
        "--driver-name",
        "--listen-address",
        "--listen-port",
    ]
    assert settings.problems(settings.Settings()) == []


def test_the_verb_shows_its_settings_and_reports_user_errors(capsys, tmp_path):
    assert main.main(["webhook", "--listen-port", "1234", "--print-config", "-o", "json"]) == 0
    settings_shown = json.loads(capsys.readouterr().out)
    assert settings_shown["listen.port"] == {"value": 1234, "source": "--listen-port"}
    words = [
        sys.executable,
        "-m",
        "drawbar.driver.main",
        "webhook",
        "--tls-certificate",
        str(tmp_path / "no"),
    ]
    # A process of its own, since it would change the log of this one; the tests' own variables are no settings of it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DRAWBAR_")}
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=50, env=environment)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr == (
        f"error: cannot read {tmp_path / 'no'}: No such file or directory; correct --tls-certificate\n"
    )

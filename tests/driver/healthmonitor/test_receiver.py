"""The receiver over HTTPS: who may send, what is read, and what those who may not cannot do."""

import asyncio
import contextlib
import io
import ssl

import aiohttp
import pytest

from drawbar.driver import containment, errors
from drawbar.driver.healthmonitor import receiver, settings, signals
from drawbar.driver.operation import address, certificates, gate
from drawbar.mocks.apiserver import listeners

TOKEN = "a-token-of-sufficient-length"
ALERT = {"status": "firing", "labels": {"device": "d0"}}


class Server:
    """A receiver, and what it took."""

    def __init__(self, folder):
        self.folder = folder
        self.batches, self.statuses = [], []
        self.ready, self.fails = True, False
        self.contained = containment.Containment()
        self.text, key = listeners.issue_certificate()
        (folder / "crt").write_bytes(self.text)
        (folder / "key").write_bytes(key)
        (folder / "token").write_text(TOKEN + "\n")

    def receive(self, batch):
        if not self.ready:
            raise receiver.NotReady("not read yet")
        if self.fails:
            raise ZeroDivisionError(TOKEN)
        self.batches.append(batch)

    @property
    def trust(self):
        return ssl.create_default_context(cadata=self.text.decode())

    @contextlib.asynccontextmanager
    async def serving(self, *, client_authority=None, token=True):
        held = certificates.Certificates(
            self.folder / "crt", self.folder / "key", client_authority=client_authority
        )
        secret = receiver.Token(self.folder / "token" if token else None)
        secret.load()
        context = await held.load()
        listen = settings.Listen(port=0)
        async with receiver.serving(
            listen, context, secret, self.receive, self.statuses.append, contained=self.contained
        ) as port:
            self.url, self.port = f"https://localhost:{port}", port
            yield

    async def send(
        self,
        body=None,
        *,
        authorization=f"Bearer {TOKEN}",
        path="/v1/alerts",
        method="POST",
        trust=None,
        **content,
    ):
        content = content or {"json": body if body is not None else {"alerts": [ALERT]}}
        headers = {"Authorization": authorization} if authorization else {}
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method, self.url + path, headers=headers, ssl=trust or self.trust, **content
            ) as answer,
        ):
            return answer.status, await answer.text()


@pytest.fixture
def server(tmp_path):
    return Server(tmp_path)


async def test_alerts_and_redfish_events_are_taken(server):
    async with server.serving():
        assert await server.send() == (200, "ok\n")
        event = {"Severity": "Critical", "OriginOfCondition": {"@odata.id": "/redfish/v1/x"}}
        assert (await server.send({"Events": [event]}, path="/v1/redfish"))[0] == 200
    assert [batch.source for batch in server.batches] == ["alert", "redfish"]
    assert server.statuses == [200, 200]


@pytest.mark.parametrize(
    "authorization",
    [None, "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN, "Bearer ", "Bearer \u00e9"],
    ids=["nothing", "another", "basic", "longer", "bare", "empty", "no ASCII"],
)
async def test_without_the_token_nothing_is_taken(server, authorization):
    async with server.serving():
        assert (await server.send(authorization=authorization))[0] == 401
        assert (await server.send(authorization=authorization, path="/"))[0] == 401
    assert server.batches == []


async def test_a_sender_without_a_certificate_of_the_authority_is_refused_and_one_with_it_is_not(
    server, tmp_path
):
    async with server.serving(client_authority=tmp_path / "crt", token=False):
        with pytest.raises(aiohttp.ClientError):
            await server.send(authorization=None)
        trust = server.trust
        trust.load_cert_chain(tmp_path / "crt", tmp_path / "key")
        assert (await server.send(authorization=None, trust=trust))[0] == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"data": b"["}, 400),
        ({"data": io.BytesIO(b" " * (receiver.BODY_BYTES + 1))}, 413),
        ({"path": "/"}, 404),
        ({"method": "GET"}, 405),
    ],
    ids=["no JSON", "too long", "another path", "another method"],
)
async def test_an_invalid_payload_is_refused(server, sent, status):
    async with server.serving():
        assert (await server.send(**sent))[0] == status
    assert server.batches == []


async def test_a_sender_is_asked_to_try_again_until_the_cluster_is_read(server):
    server.ready = False
    async with server.serving():
        assert await server.send() == (503, "not read yet\n")


async def test_silent_callers_keep_no_sender_out(server):
    anything = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anything.check_hostname, anything.verify_mode = False, ssl.CERT_NONE
    async with server.serving(), contextlib.AsyncExitStack() as stack:
        # As long as the writers are held, the connections stay.
        writers = []
        for _ in range(gate.CONNECTIONS_LIMIT + 10):
            writers.append((await asyncio.open_connection("localhost", server.port, ssl=anything))[1])
            stack.callback(writers[-1].transport.abort)
        assert (await server.send())[0] == 200


async def test_callers_that_do_not_finish_their_handshake_keep_no_sender_out(server):
    async with server.serving(), contextlib.AsyncExitStack() as stack:
        silent = []
        for _ in range(gate.CONNECTIONS_LIMIT + 10):
            silent.append(await asyncio.open_connection("127.0.0.1", server.port))
            stack.callback(silent[-1][1].transport.abort)
        assert (await server.send())[0] == 200
        for reader, _ in silent[:10]:
            async with asyncio.timeout(3):
                assert await reader.read() == b""


async def test_a_caller_without_the_token_has_its_body_left_unread(server):
    async with server.serving():
        reader, writer = await asyncio.open_connection("localhost", server.port, ssl=server.trust)
        writer.write(b"POST /v1/alerts HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        answer = await reader.readline()
        writer.transport.abort()
    assert b"401" in answer, "before any of the body was sent"


async def test_a_token_is_read_again_and_a_wrong_file_is_an_error(server, tmp_path):
    secret = receiver.Token(tmp_path / "token")
    secret.load()
    assert secret.accepts(f"Bearer {TOKEN}")
    (tmp_path / "token").write_text("another-token-of-this-length")
    secret.load()
    assert not secret.accepts(f"Bearer {TOKEN}")
    for content in ("short", "two lines of\nsome length", "x" * 5000):
        (tmp_path / "token").write_text(content)
        with pytest.raises(errors.UsageError, match="openssl rand"):
            secret.load()
    assert secret.accepts("Bearer another-token-of-this-length"), "the former one stays"
    with pytest.raises(errors.UsageError, match="--token-file"):
        receiver.Token(tmp_path / "no").load()


async def test_an_address_that_cannot_be_listened_on_is_one_sentence(server, tmp_path):
    async with server.serving():
        held = certificates.Certificates(tmp_path / "crt", tmp_path / "key")
        listen = settings.Listen(port=server.port)
        with pytest.raises(address.AddressError, match="--listen-port"):
            async with receiver.serving(
                listen, await held.load(), receiver.Token(None), server.receive, print
            ):
                pass


@pytest.mark.defects
async def test_a_batch_that_meets_a_defect_is_answered_so_and_the_next_is_taken(server):
    async with server.serving():
        server.fails = True
        status, text = await server.send()
        assert status == 500
        assert "unexpected error" in text
        assert TOKEN not in text
        server.fails = False
        assert await server.send() == (200, "ok\n")
    assert server.statuses == [500, 200]
    assert server.contained.counts() == {"requests": 1.0}


async def dribble(piece, pause_seconds):
    """Yield a body without an end, piece by piece."""
    while True:
        yield piece
        await asyncio.sleep(pause_seconds)


@pytest.mark.parametrize(("piece", "pause_seconds"), [(b" ", 0.01), (b" " * 65_536, 0)], ids=["slow", "fast"])
async def test_an_endless_body_of_a_sender_with_the_token_ends_and_the_next_sender_is_served(
    server, monkeypatch, piece, pause_seconds
):
    monkeypatch.setattr(receiver, "CONNECTION_SECONDS", 1.0)
    async with server.serving():
        async with asyncio.timeout(120):
            try:
                status, _ = await server.send(data=dribble(piece, pause_seconds))
            except aiohttp.ClientError:
                status = None
        assert status in (None, 413)
        monkeypatch.undo()
        assert (await server.send())[0] == 200
    assert len(server.batches) == 1


HOSTILE = {
    "deep": b"[" * 500_000,
    "deep objects": b'{"alerts":' * 50_000,
    "a huge number": b'{"alerts":[{"status":"firing","labels":{"device":' + b"9" * 500_000 + b"}}]}",
    "a lone surrogate": b'{"alerts":[{"status":"firing","labels":{"device":"\\ud800"}}]}',
    "bytes that are no text": b'{"alerts":[{"status":"firing","labels":{"device":"\xff\xfe"}}]}',
    "names of no device": b'{"alerts":[{"status":"firing","labels":{"device":"../../etc\\u0000"}}]}',
    "labels that are a list": b'{"alerts":[{"status":"firing","labels":["device"]}]}',
    "many keys": b'{"alerts":[{"status":"firing","labels":{'
    + b",".join(b'"k%d":"v"' % number for number in range(50_000))
    + b"}}]}",
    "many alerts": b'{"alerts":[' + b",".join([b'{"status":"firing","labels":{}}'] * 30_000) + b"]}",
    "nothing": b"",
}


@pytest.mark.parametrize("path", receiver.PATHS)
@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_payload_is_answered_without_a_defect_and_bounded(server, body, path):
    async with server.serving():
        status, text = await server.send(data=body, path=path)
        assert status in (200, 400)
        assert len(text) < 2000
        assert "Traceback" not in text
        assert (await server.send())[0] == 200
    assert all(len(batch.signals) <= signals.SIGNALS_MAX for batch in server.batches)
    assert not any(server.contained.counts().values())


async def test_a_sender_beyond_its_budget_is_refused_before_its_body_is_read_and_no_other_is(
    server, monkeypatch
):
    monkeypatch.setattr(receiver, "SIGNALS_AT_ONCE", 3 * receiver.REQUEST_COST)
    monkeypatch.setattr(receiver, "SIGNALS_PER_SECOND", 0.001)
    async with server.serving():
        statuses = [(await server.send())[0] for _ in range(6)]
        assert statuses[0] == 200
        assert statuses[-1] == 503
        assert len(server.batches) == statuses.count(200) < 4
        status, text = await server.send(data=b"no JSON")
        assert status == 503
        assert "signals a second came from this address" in text


def test_the_budgets_are_those_of_the_latest_addresses_and_fill_again():
    now = 0.0
    flow = receiver.Flow(lambda: now)
    flow.take("10.0.0.1", 30_000)
    assert not flow.has_room("10.0.0.1")
    assert flow.has_room("10.0.0.2")
    now = 60.0
    assert flow.has_room("10.0.0.1")
    for number in range(2 * receiver.ADDRESSES_MAX):
        flow.take(f"10.0.1.{number}", 1)
    assert len(flow._left) == receiver.ADDRESSES_MAX

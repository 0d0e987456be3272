"""The remedies for an API server that does not answer."""

import asyncio
import datetime
import ssl

import aiohttp
import pytest
import trustme

from drawbar.driver.cli import remedies


async def find_tls_error(authority, trusted, begin):
    """Return the error of a connection to a server whose certificate is valid for a day from `begin`."""
    served, asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    end = begin + datetime.timedelta(days=1)
    authority.issue_cert("127.0.0.1", not_before=begin, not_after=end).configure_cert(served)
    trusted.configure_trust(asking)
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=served)
    port = server.sockets[0].getsockname()[1]
    async with server, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorCertificateError) as refused:
            await session.get(f"https://127.0.0.1:{port}/", ssl=asking)
    return refused.value


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("days", "is_trusted", "remedy"),
    [
        (-2, True, "renew the API server's certificate"),
        (2, True, "correct the clock of this machine"),
        (0, False, "check certificate-authority"),
    ],
    ids=["expired", "early", "unknown authority"],
)
async def test_each_refused_certificate_has_its_remedy(days, is_trusted, remedy):
    authority = trustme.CA()
    begin = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    error = await find_tls_error(authority, authority if is_trusted else trustme.CA(), begin)
    assert remedy in remedies.find_cause_remedy(error)

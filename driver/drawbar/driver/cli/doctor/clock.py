"""Asks the API server what time it is.

Every answer has a `Date` header (RFC 9110, 6.6.1), which the usual client does not hand on; so this is a request of its own.
"""

import datetime
import email.utils

import aiohttp

from drawbar.driver.cli.doctor import errors, observed
from drawbar.driver.kube import config

TIMEOUT_SECONDS = 10.0
_PATH = "/version"


async def read(connection: config.Connection) -> observed.Clock:
    """The API server's clock between two looks at ours.

    Raises:
        errors.CannotCheck: it does not answer.
        kube.errors.ConfigError: the token cannot be read.
    """
    header = connection.authorization()
    connector = aiohttp.TCPConnector(ssl=connection.tls if connection.tls is not None else True)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    before = _now()
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.get(
                connection.server + _PATH, headers={"Authorization": header} if header else {}
            ) as response,
        ):
            return observed.Clock(before=before, date=_date(response.headers.get("Date", "")), after=_now())
    except (aiohttp.ClientError, TimeoutError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise errors.CannotCheck(
            f"nothing can be looked at: {connection.server} (from {connection.origin}) does not answer: {reason}; "
            "is it the right address, does it run, does a firewall stand between?"
        ) from error


def _date(header: str) -> datetime.datetime | None:
    try:
        found = email.utils.parsedate_to_datetime(header)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)

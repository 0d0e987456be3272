"""The session with a Redfish service (DSP0266, "Security"): its token, or the password with each request."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping

import aiohttp

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish import documents, messages, transport

_logger = logging.getLogger(__name__)


class Session:
    """The credentials of all requests; a session is begun with a user name, and ended by `end`.

    Attributes:
        token: of the session; empty without one.
        refused_login: the refusal after which the password is sent with each request; else None.
    """

    def __init__(self, wire: transport.Transport, credentials: contract.Credentials) -> None:
        self.token = ""
        self.refused_login: errors.Unauthenticated | None = None
        self._wire = wire
        self._credentials = credentials
        # Its possible URIs.
        self._uris: tuple[str, ...] = ()
        self._is_basic = False
        self._login = asyncio.Lock()

    def headers(self) -> Mapping[str, str]:
        """Return the headers with the credentials."""
        credentials = self._credentials
        if self.token:
            return {"X-Auth-Token": self.token}
        if self._is_basic:
            basic = aiohttp.encode_basic_auth(credentials.username, credentials.password, "utf-8")
            return {"Authorization": basic}
        return {"Authorization": f"Bearer {credentials.token}"} if credentials.token else {}

    def answers_challenge(self, error: errors.Unauthenticated) -> bool:
        """Return whether the credentials answer a refusal without a session; then they go with each request."""
        self._is_basic = bool(self._credentials.username) and messages.wants_basic(error)
        return self._is_basic or bool(self._credentials.token)

    async def begin(self, root: documents.Document, former: str) -> None:
        """Begin a session in place of the one with the former token, unless another task has begun one.

        Args:
            root: the service root.
            former: the token; empty for the first session.

        Raises:
            FabricError: the service refuses the credentials, or cannot be reached.
        """
        if not self._credentials.username or self._is_basic:
            return
        async with self._login:
            if self.token != former:
                return
            uri = find_sessions(root)
            if uri is None:
                self._is_basic = True
                return
            answer = await self._ask(uri, is_first=not former)
            if answer is None:
                self._is_basic = True
                return
            self.token = answer.headers.get("X-Auth-Token", "")
            # An answer on its way may still echo the former.
            self._wire.tokens = (former, self.token)
            if not self.token:
                raise self._wire.build_malformed("to begin a session", "sent no X-Auth-Token")
            named = documents.text(answer.body, "Id")
            former_uris, self._uris = self._uris, (*answer.locations, *((f"{uri}/{named}",) if named else ()))
            # It may last: some services answer 401 for missing privileges, and each reading would leave one behind.
            with contextlib.suppress(errors.FabricError):
                await self._delete(former_uris)

    async def _ask(self, uri: str, *, is_first: bool) -> transport.Answer | None:
        """Ask for a session; return None if the service wants the password with each request.

        Raises:
            FabricError: the service refuses the credentials, or cannot be reached.
        """
        credentials = self._credentials
        request = transport.Request(
            method="POST",
            url=self._wire.resolve(uri),
            what=f"to begin a session as {credentials.username}",
            body={"UserName": credentials.username, "Password": credentials.password},
            changes=True,
        )
        try:
            return await self._wire.send(request)
        except (errors.NotFound, errors.Unimplemented):
            _logger.info("the Redfish service has no sessions, each request carries the password")
            return None
        except errors.Unauthenticated as error:
            if is_first and messages.wants_basic(error):
                # A wrong password is refused again.
                self.refused_login = error
                return None
            raise
        except (errors.Refused, errors.Misconfigured) as error:
            raise messages.explain_login(error) from error

    async def end(self) -> None:
        """End the session on the service, if there is one.

        Raises:
            FabricError: it is not ended.
        """
        await self._delete(self._uris)

    async def _delete(self, uris: tuple[str, ...]) -> None:
        """End a session by the first of its URIs that is one.

        Raises:
            FabricError: it is not ended.
        """
        for number, uri in enumerate(uris, 1):
            try:
                request = transport.Request(
                    method="DELETE",
                    url=self._wire.resolve(uri),
                    what="to end the session",
                    headers=self.headers(),
                    changes=True,
                )
                await self._wire.send(request)
            except errors.FabricError:
                if number == len(uris):
                    raise
            else:
                return


def find_sessions(root: documents.Document) -> str | None:
    """Return the URI of the sessions: the link, or the schema's place of a linked session service; else None."""
    service = root.link("SessionService")
    return root.link("Links", "Sessions") or (f"{service}/Sessions" if service is not None else None)

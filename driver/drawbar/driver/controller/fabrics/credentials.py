"""The credentials of a Fabric: one Secret in the controller's own namespace, followed by its name alone.

The permission that this needs names each Secret (`deploy/manifests/controller-rbac.yaml`): no other one can be read,
listed or watched. What stands in a Secret leaves this module only as `contract.Credentials`.
"""

import asyncio
import base64
import binascii
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from drawbar.driver import backoff
from drawbar.driver.api import core
from drawbar.driver.kube import client, errors, kinds
from drawbar.fabric import contract, tls

log = logging.getLogger(__name__)

ROLE = "drawbar-fabric-credentials"

# The closed meaning of a Secret's keys.
KEYS = {
    "username": "username",
    "password": "password",
    "token": "token",
    "ca.crt": "authority",
    "tls.crt": "certificate",
    "tls.key": "key",
}
_LINES = ("username", "password", "token")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """There are no credentials, in the words of a condition."""

    reason: str
    message: str


Given = contract.Credentials | Unusable


class Vault:
    """The Secrets of one namespace, each by its name."""

    def __init__(self, api: client.Client, namespace: str, *, role: str = ROLE) -> None:
        self._api = api
        self._namespace = namespace
        self._role = role

    async def follow(self, name: str) -> AsyncGenerator[Given, None]:
        """Yield what the Secret gives now, and again whenever that changes.

        A Secret that can no longer be read leaves its last credentials in force; one that is deleted, or no longer gives
        any, ends them. Nothing is raised.
        """
        last: Given | None = None
        pauses, loop = backoff.Backoff(), asyncio.get_running_loop()
        while True:
            began, pause = loop.time(), 0.0
            try:
                async for given in self._versions(name):
                    if given != last:
                        last = given
                        yield given
            except errors.KubeError as error:
                pause = error.retry_after_seconds if isinstance(error, errors.Throttled) else 0.0
                failed = self._unread(name, error)
                if not isinstance(last, contract.Credentials) and failed != last:
                    last = failed
                    yield failed
                log.info("cannot follow a Secret, trying again: %s", error, extra={"secret": name})
            await asyncio.sleep(pauses.ended(loop.time() - began, pause))

    async def _versions(self, name: str) -> AsyncIterator[Given]:
        """Yield what one list and watch give, to the end of the watch."""
        only = f"metadata.name={name}"
        listing = await self._api.list_all(
            kinds.SECRET, into=core.Secret, namespace=self._namespace, fields=only
        )
        if listing.unreadable:
            yield Unusable(reason="CredentialsUnread", message=str(listing.unreadable[0]))
        else:
            yield self._read(name, listing.items[0] if listing.items else None)
        async for event in self._api.watch(
            kinds.SECRET,
            into=core.Secret,
            namespace=self._namespace,
            fields=only,
            resource_version=listing.resource_version,
        ):
            if event.unreadable is not None and event.type != "DELETED":
                yield Unusable(reason="CredentialsUnread", message=str(event.unreadable))
            elif event.item is not None:
                yield self._read(name, None if event.type == "DELETED" else event.item)

    def _read(self, name: str, secret: core.Secret | None) -> Given:
        where = f"Secret {self._namespace}/{name}"
        if secret is None:
            message = f"{where} does not exist; create it, or mend spec.credentialsSecretRef"
            return Unusable(reason="CredentialsMissing", message=message)
        if not secret.data:
            message = f"{where} is empty; give it some of {', '.join(KEYS)}"
            return Unusable(reason="CredentialsMissing", message=message)
        given, problems = parse(secret)
        if problems:
            return Unusable(reason="CredentialsInvalid", message=f"{where}: {'; '.join(problems)}")
        return given

    def _unread(self, name: str, error: errors.KubeError) -> Unusable:
        where = f"Secret {self._namespace}/{name}"
        if isinstance(error, errors.Denied):
            message = (
                f"the controller may not read {where}; add {name} to the resourceNames of Role "
                f"{self._namespace}/{self._role}"
            )
            return Unusable(reason="CredentialsForbidden", message=message)
        return Unusable(reason="CredentialsUnread", message=f"{where} cannot be read: {error}")


def parse(secret: core.Secret) -> tuple[contract.Credentials, tuple[str, ...]]:
    """Return the credentials in a Secret, and a sentence for everything that is wrong with it; none quotes a value."""
    problems = [f"the key {key} is unknown" for key in sorted(secret.data.keys() - KEYS.keys())]
    if problems:
        problems.append(f"known are {', '.join(KEYS)}")
    values = {}
    for key in KEYS.keys() & secret.data.keys():
        try:
            text = base64.b64decode(secret.data[key], validate=True).decode()
        except (binascii.Error, ValueError):
            problems.append(f"{key} is no UTF-8 text")
            continue
        if KEYS[key] in _LINES:
            # Made from a file, it has the end of the file's line.
            text = text.removesuffix("\n").removesuffix("\r")
            if not text.isprintable():
                problems.append(f"{key} has characters that cannot be printed")
        if not text:
            problems.append(f"{key} is empty; give it a value, or leave it out")
        values[KEYS[key]] = text
    given = contract.Credentials(**values)
    return given, (*problems, *(() if problems else tls.problems(given)))

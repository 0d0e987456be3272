"""The credentials of a Fabric: one Secret in the controller's own namespace, followed by its name only.

The permission for this names each Secret (`deploy/manifests/controller-rbac.yaml`): no other one can be read, listed or
watched. A Secret's content leaves this module only as `contract.Credentials`, and only for a recipient that the Secret
itself names: the right to change a Fabric is not the right to its Secret.
"""

import asyncio
import base64
import binascii
import json
import logging
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Self

import msgspec

from drawbar.driver import backoff
from drawbar.driver.api import core, fabrics
from drawbar.driver.catalogue import reasons
from drawbar.driver.kube import client, errors, kinds
from drawbar.fabric import contract, origins, tls

log = logging.getLogger(__name__)

ROLE = "drawbar-fabric-credentials"

# The closed set of a Secret's keys: the credentials, and their recipients.
KEYS = {
    "username": "username",
    "password": "password",
    "token": "token",
    "ca.crt": "authority",
    "tls.crt": "certificate",
    "tls.key": "key",
}
ORIGINS = "origins"
FABRICS = "fabrics"
SERVER_NAMES = "server-names"
INSECURE = "insecure-skip-verify"
RECIPIENT_KEYS = (ORIGINS, FABRICS, SERVER_NAMES, INSECURE)
LINES_MAX = 64
_LINES = ("username", "password", "token")
_TRUTHS = {"true": True, "false": False}


class Unusable(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why there are no credentials, in the words of a condition."""

    reason: str
    message: str


Outcome = contract.Credentials | Unusable


class Recipient(msgspec.Struct, frozen=True, kw_only=True):
    """A Fabric that asks for credentials, and their destination.

    Attributes:
        fabric: the Fabric's name.
        endpoint: the address of its manager.
        verify: whether the manager's certificate must be valid.
        server_name: the name that the certificate must have; empty for the endpoint's host.
    """

    fabric: str
    endpoint: str
    verify: bool = True
    server_name: str = ""

    @classmethod
    def from_spec(cls, fabric: str, spec: fabrics.FabricSpec) -> Self:
        """Return the recipient that a Fabric's spec describes."""
        return cls(
            fabric=fabric,
            endpoint=spec.endpoint,
            verify=spec.tls.verify,
            server_name=spec.tls.server_name,
        )


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The recipients that a Secret names for its credentials.

    Attributes:
        origins: the origins that may receive them; empty for none.
        fabrics: the Fabrics that may have them; empty for any.
        server_names: the further names that a manager's certificate may have.
        insecure: whether a manager with an unverified certificate may have them.
    """

    origins: frozenset[str] = frozenset()
    fabrics: frozenset[str] = frozenset()
    server_names: frozenset[str] = frozenset()
    insecure: bool = False


class Vault:
    """The Secrets of one namespace, each by its name."""

    def __init__(self, api: client.Client, namespace: str, *, role: str = ROLE) -> None:
        self._api = api
        self._namespace = namespace
        self._role = role

    async def follow(self, name: str, recipient: Recipient) -> AsyncGenerator[Outcome, None]:
        """Yield the Secret's credentials for the recipient, and again whenever they change.

        If the Secret can no longer be read, its last credentials stay in force. If it is deleted, or no longer gives
        any, they end. Nothing is raised.
        """
        last: Outcome | None = None
        pauses, loop = backoff.Backoff(), asyncio.get_running_loop()
        while True:
            began, pause = loop.time(), 0.0
            try:
                async for secret in self._versions(name):
                    outcome = (
                        secret
                        if isinstance(secret, Unusable)
                        else choose(name, self._namespace, secret, recipient)
                    )
                    if outcome != last:
                        last = outcome
                        yield outcome
            except errors.KubeError as error:
                pause = error.retry_after_seconds if isinstance(error, errors.Throttled) else 0.0
                failed = self._unread(name, error)
                if not isinstance(last, contract.Credentials) and failed != last:
                    last = failed
                    yield failed
                log.info("cannot follow a Secret, trying again: %s", error, extra={"secret": name})
            await asyncio.sleep(pauses.compute_pause(loop.time() - began, pause))

    async def _versions(self, name: str) -> AsyncIterator[core.Secret | Unusable | None]:
        """Yield the Secret of one list and watch, to the end of the watch; None while there is none."""
        only = f"metadata.name={name}"
        listing = await self._api.list_all(
            kinds.SECRET, into=core.Secret, namespace=self._namespace, fields=only
        )
        if listing.unreadable:
            yield Unusable(reason=reasons.CREDENTIALS_UNREAD, message=str(listing.unreadable[0]))
        else:
            yield listing.items[0] if listing.items else None
        async for event in self._api.watch(
            kinds.SECRET,
            into=core.Secret,
            namespace=self._namespace,
            fields=only,
            resource_version=listing.resource_version,
        ):
            if event.unreadable is not None and event.type != "DELETED":
                yield Unusable(reason=reasons.CREDENTIALS_UNREAD, message=str(event.unreadable))
            elif event.item is not None:
                yield None if event.type == "DELETED" else event.item

    def _unread(self, name: str, error: errors.KubeError) -> Unusable:
        where = f"Secret {self._namespace}/{name}"
        if isinstance(error, errors.Denied):
            message = (
                f"the controller may not read {where}; add {name} to the resourceNames of Role "
                f"{self._namespace}/{self._role}"
            )
            return Unusable(reason=reasons.CREDENTIALS_FORBIDDEN, message=message)
        return Unusable(reason=reasons.CREDENTIALS_UNREAD, message=f"{where} cannot be read: {error}")


def choose(name: str, namespace: str, secret: core.Secret | None, recipient: Recipient) -> Outcome:
    """Return the Secret's credentials for a recipient, or the reason why there are none."""
    where = f"Secret {namespace}/{name}"
    if secret is None:
        message = f"{where} does not exist; create it, or correct spec.credentialsSecretRef"
        return Unusable(reason=reasons.CREDENTIALS_MISSING, message=message)
    if not KEYS.keys() & secret.data.keys():
        message = f"{where} has no credentials; give it some of {', '.join(KEYS)}"
        return Unusable(reason=reasons.CREDENTIALS_MISSING, message=message)
    for_recipients = {key: value for key, value in secret.data.items() if key in RECIPIENT_KEYS}
    parsed, problems = parse(
        {key: value for key, value in secret.data.items() if key not in RECIPIENT_KEYS},
        accepted=(*KEYS, *RECIPIENT_KEYS),
    )
    grant, wrong = parse_grant(for_recipients)
    if problems or wrong:
        message = f"{where}: {'; '.join((*problems, *wrong))}"
        return Unusable(reason=reasons.CREDENTIALS_INVALID, message=message)
    return refuse(name, namespace, grant, recipient) or parsed


def refuse(name: str, namespace: str, grant: Grant, recipient: Recipient) -> Unusable | None:
    """Return the reason why a recipient gets no credentials, or None if the Secret names it."""
    where = f"Secret {namespace}/{name}"
    origin = origins.find_origin(recipient.endpoint)
    if origin is None:
        # This is not quoted: it may have a password in it.
        message = (
            f"{where} is sent nowhere, since the endpoint of Fabric {recipient.fabric} has no origin that it could name; "
            f"write the endpoint as {origins.FORMS}, without a user name"
        )
        return Unusable(reason=reasons.CREDENTIALS_NOT_FOR_FABRIC, message=message)

    def unless(key: str, value: str, sentence: str) -> Unusable:
        patch = json.dumps({"stringData": {key: value}})
        command = (
            f"kubectl --namespace {namespace} patch secret {name} --type=merge --patch {shlex.quote(patch)}"
        )
        reason = reasons.CREDENTIALS_NOT_FOR_FABRIC if grant.origins else reasons.CREDENTIALS_UNBOUND
        replaces = "; this replaces the lines that are there" if key != INSECURE and grant.origins else ""
        return Unusable(
            reason=reason, message=f"{sentence}, so nothing is sent; if it is meant, run: {command}{replaces}"
        )

    if not grant.origins:
        return unless(
            ORIGINS, origin, f"{where} has no key {ORIGINS} that names the fabric manager, here {origin}"
        )
    if origin not in grant.origins:
        return unless(ORIGINS, origin, f"{where} is not for {origin}: its key {ORIGINS} names others")
    if grant.fabrics and recipient.fabric not in grant.fabrics:
        sentence = f"{where} is not for Fabric {recipient.fabric}: its key {FABRICS} names others"
        return unless(FABRICS, recipient.fabric, sentence)
    if not recipient.verify and not grant.insecure:
        sentence = f"{where} is not for a manager whose certificate is not verified (spec.tls.verify of Fabric {recipient.fabric})"
        return unless(INSECURE, "true", sentence)
    if recipient.server_name not in {"", origins.host(origin)} | grant.server_names:
        sentence = (
            f"{where} is not for a manager with a certificate for {json.dumps(recipient.server_name)} (spec.tls.serverName of Fabric "
            f"{recipient.fabric})"
        )
        return unless(SERVER_NAMES, recipient.server_name, sentence)
    return None


def parse(
    data: Mapping[str, str], *, accepted: tuple[str, ...] = tuple(KEYS)
) -> tuple[contract.Credentials, tuple[str, ...]]:
    """Return the credentials in a Secret's data, and a sentence for each problem; none quotes a value.

    Args:
        data: the values in base64, by key.
        accepted: the keys that the sentence about an unknown key lists.
    """
    problems = [f"the key {key} is unknown" for key in sorted(data.keys() - KEYS.keys())]
    if problems:
        problems.append(f"known are {', '.join(accepted)}")
    values = {}
    for key in KEYS.keys() & data.keys():
        text = _decode(key, data[key], problems)
        if text is None:
            continue
        if KEYS[key] in _LINES:
            # A value made from a file ends with the file's line end.
            text = text.removesuffix("\n").removesuffix("\r")
            if not text.isprintable():
                problems.append(f"{key} has characters that cannot be printed")
        if not text:
            problems.append(f"{key} is empty; give it a value, or leave it out")
        values[KEYS[key]] = text
    parsed = contract.Credentials(**values)
    return parsed, (*problems, *(() if problems else tls.problems(parsed)))


def parse_grant(data: Mapping[str, str]) -> tuple[Grant, tuple[str, ...]]:
    """Return the recipients that a Secret's data names, and a sentence for each problem; none quotes a value."""
    problems: list[str] = []
    listed: dict[str, list[str]] = {key: [] for key in (ORIGINS, FABRICS, SERVER_NAMES)}
    for key in listed.keys() & data.keys():
        text = _decode(key, data[key], problems)
        if text is None:
            continue
        listed[key] = [line.strip() for line in text.split("\n") if line.strip()]
        if not 0 < len(listed[key]) <= LINES_MAX:
            problems.append(
                f"{key} has {len(listed[key])} lines; give 1 to {LINES_MAX}, or leave the key out"
            )
    named = [origins.parse(line) for line in listed[ORIGINS]]
    problems += [
        f"line {number} of {ORIGINS} is not an origin; write {origins.FORMS}"
        for number, origin in enumerate(named, start=1)
        if origin is None
    ]
    insecure: bool | None = False
    if INSECURE in data:
        insecure = _TRUTHS.get((_decode(INSECURE, data[INSECURE], problems) or "").strip())
        if insecure is None:
            problems.append(f"{INSECURE} is neither true nor false; write one of the two")
    grant = Grant(
        origins=frozenset(origin for origin in named if origin is not None),
        fabrics=frozenset(listed[FABRICS]),
        server_names=frozenset(listed[SERVER_NAMES]),
        insecure=insecure is True,
    )
    return grant, tuple(problems)


def _decode(key: str, value: str, problems: list[str]) -> str | None:
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        problems.append(f"{key} is not UTF-8 text")
        return None

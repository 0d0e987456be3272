"""The certificate of a server, renewed while it runs.

Other programs renew it, and new connections get the new one. If only one file of a pair has been replaced, the pair
does not match and is skipped; meanwhile the last good one serves. The files are read every `PAUSE_SECONDS`: a mounted
Secret is replaced by moving links, which Python's standard library cannot watch.
"""

import asyncio
import hashlib
import logging
import os
import ssl
import subprocess
from pathlib import Path

from drawbar.driver import errors
from drawbar.fabric import trust

log = logging.getLogger(__name__)

# A renewal comes days before the old certificate expires.
PAUSE_SECONDS = 30.0
_MAKING_SECONDS = 30.0
_MAKE = (
    *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
    *("-subj", "/CN=drawbar", "-days", "3650", "-keyout", "/dev/stdout", "-out", "/dev/stdout"),
)


class Certificates:
    """One certificate with its key, and the authority for clients. Call `load` before any other method.

    Args:
        certificate: PEM file with the certificate, and those between it and the authority.
        key: PEM file with its key.
        client_authority: PEM file of the authority for clients' certificates. None if clients need none.
        pause_seconds: the time between two readings of the files.
    """

    def __init__(
        self,
        certificate: Path,
        key: Path,
        *,
        client_authority: Path | None = None,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._certificate = certificate
        self._key = key
        self._client_authority = client_authority
        self._pause_seconds = pause_seconds
        self._fingerprint = b""
        self._current = _context()

    async def load(self) -> ssl.SSLContext:
        """Return the context to listen with; each connection gets the certificate of that moment.

        Raises:
            errors.UsageError: a file cannot be read, or certificate and key do not match.
        """
        await self.look()
        # Read once: a renewal could come between two readings.
        listening = self._current

        def choose(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
            del name, context
            connection.context = self._current

        listening.sni_callback = choose
        return listening

    async def follow(self) -> None:
        """Take over renewed files until cancelled."""
        refused = ""
        while True:
            await asyncio.sleep(self._pause_seconds)
            try:
                changed = await self.look()
            except errors.UsageError as error:
                if refused != str(error):
                    log.warning("keeping the old certificate: %s", error)
                refused = str(error)
            else:
                refused = ""
                if changed:
                    log.info("certificate replaced", extra={"file": str(self._certificate)})

    async def look(self) -> bool:
        """Read the files once and return whether they were renewed; the new certificate is then current.

        Raises:
            errors.UsageError: a file cannot be read, or certificate and key do not match; the current certificate
                stays.
        """
        fingerprint = await asyncio.to_thread(self._read)
        if fingerprint == self._fingerprint:
            return False
        self._current = await asyncio.to_thread(self._load)
        self._fingerprint = fingerprint
        return True

    def _read(self) -> bytes:
        digest = hashlib.sha256()
        for file in filter(None, (self._certificate, self._key, self._client_authority)):
            try:
                digest.update(file.read_bytes())
            except OSError as error:
                flag = {
                    self._certificate: "--tls-certificate",
                    self._key: "--tls-key",
                }.get(file, "--tls-client-authority")
                raise errors.UsageError(
                    f"cannot read {file}: {error.strerror or error}; correct {flag}"
                ) from error
        return digest.digest()

    def _load(self) -> ssl.SSLContext:
        context = _context()
        try:
            # A key with a passphrase must not make the process ask for it.
            context.load_cert_chain(self._certificate, self._key, password=lambda: "")
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise errors.UsageError(
                f"{self._certificate} and {self._key} are no certificate with its key, as PEM and without a "
                f"passphrase: {reason}"
            ) from error
        if self._client_authority is not None:
            try:
                context.load_verify_locations(self._client_authority)
            except (OSError, ValueError) as error:
                raise errors.UsageError(
                    f"{self._client_authority} holds no certificate of an authority, as PEM: {error}"
                ) from error
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def make_self_signed() -> ssl.SSLContext:
    """Return a server's TLS context with a new certificate that signs itself; nothing is written to a disk.

    Raises:
        OSError: there is no program openssl.
        subprocess.SubprocessError: it failed, or did not end.
    """
    made = subprocess.run(_MAKE, capture_output=True, check=True, timeout=_MAKING_SECONDS)  # noqa: S603 - a constant
    descriptor = os.memfd_create("certificate")
    try:
        os.write(descriptor, made.stdout)
        context = _context()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return context


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    trust.verify_as_go(context)
    return context

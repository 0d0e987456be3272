"""The webhook's certificate, which others renew while it runs: new connections get the new one.

A pair that does not fit together, because only one file of it has been replaced yet, is passed over until it does;
meanwhile the last good one serves. The files are looked at now and then: a mounted Secret is replaced by moving links,
which Python's standard library cannot watch.
"""

import asyncio
import hashlib
import logging
import ssl
from pathlib import Path

from drawbar.driver import errors

log = logging.getLogger(__name__)

# Who renews does so days before the old one ends.
PAUSE_SECONDS = 30.0


class Certificates:
    """One certificate with its key. Call `load` before anything else."""

    def __init__(self, certificate: Path, key: Path, *, pause_seconds: float = PAUSE_SECONDS) -> None:
        self._certificate = certificate
        self._key = key
        self._pause_seconds = pause_seconds
        self._known = b""
        self._current = _context()

    async def load(self) -> ssl.SSLContext:
        """The context to listen with; each connection gets the certificate that is current then.

        Raises:
            errors.UsageError: a file cannot be read, or they are no pair.
        """
        await self.look()
        # Not read once more: a renewal would come between the two.
        listening = self._current

        def choose(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
            del name, context
            connection.context = self._current

        listening.sni_callback = choose
        return listening

    async def follow(self) -> None:
        """Takes over what is new, until cancelled."""
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
        """Looks at the files once; whether there was something new, which is current now.

        Raises:
            errors.UsageError: a file cannot be read, or they are no pair; what was current stays.
        """
        found = await asyncio.to_thread(self._fingerprint)
        if found == self._known:
            return False
        self._current = await asyncio.to_thread(self._loaded)
        self._known = found
        return True

    def _fingerprint(self) -> bytes:
        digest = hashlib.sha256()
        for file in (self._certificate, self._key):
            try:
                digest.update(file.read_bytes())
            except OSError as error:
                raise errors.UsageError(
                    f"cannot read {file}: {error.strerror or error}; name the webhook's certificate and key by "
                    f"--tls-certificate and --tls-key"
                ) from error
        return digest.digest()

    def _loaded(self) -> ssl.SSLContext:
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
        return context


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context

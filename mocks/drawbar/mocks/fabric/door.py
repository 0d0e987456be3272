"""Who may speak to a simulated fabric manager: whoever has shown the token that it asks for, if it asks for one."""

from drawbar.fabric import contract, errors


class Door:
    """What is asked for, and what was shown last. Kept in memory only: a restarted manager has been shown nothing.

    Attributes:
        token: what is asked for; empty: nothing.
        blabs: its refusals quote what was shown, as managers do that nobody should have written.
        tls: the settings of TLS that came with what was shown.
    """

    def __init__(self, token: str, *, blabs: bool = False) -> None:
        self.token = token
        self.blabs = blabs
        self.tls = contract.Tls()
        self._shown: contract.Credentials | None = None

    def show(self, credentials: contract.Credentials, tls: contract.Tls) -> None:
        """Takes over credentials; what was shown before counts no longer."""
        self._shown, self.tls = credentials, tls

    def check(self) -> None:
        """Lets a call in.

        Raises:
            Unauthenticated: NOT_CONFIGURED where nothing was shown yet; the token is another one.
        """
        if not self.token or (self._shown is not None and self._shown.token == self.token):
            return
        if self._shown is None:
            raise errors.Unauthenticated(
                "the simulated fabric manager was shown no credentials yet; send them",
                reason=errors.Reason.NOT_CONFIGURED,
            )
        quoted = f' "{self._shown.token}"' if self.blabs else ""
        raise errors.Unauthenticated(f"the simulated fabric manager does not know this token{quoted}")

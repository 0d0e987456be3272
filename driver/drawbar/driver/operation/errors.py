"""What can go wrong between an administrator and a running daemon."""

from drawbar.driver import errors


class AddressError(errors.DrawbarError):
    """Probes and metrics cannot be served at an address, or nobody answers there."""

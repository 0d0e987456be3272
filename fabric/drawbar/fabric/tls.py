"""TLS contexts from credentials that stand in memory.

Python's ssl module reads private keys from files only. The key goes through an anonymous file in memory, which has no
name, is closed at once and never touches a disk.
"""

import os
import ssl

from drawbar.fabric import contract, errors


def context(credentials: contract.Credentials, tls: contract.Tls) -> ssl.SSLContext:
    """What a client of the fabric manager uses; `tls.server_name` is for the caller to pass on.

    Raises:
        InvalidConfiguration: a certificate or key cannot be used; all problems are listed, none quotes them.
    """
    found: list[str] = []
    made = _trusting(credentials.authority, found)
    if not tls.verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    if credentials.certificate or credentials.key:
        found += _present(made, credentials)
    if found:
        raise errors.InvalidConfiguration(found)
    return made


def problems(credentials: contract.Credentials) -> tuple[str, ...]:
    """What is wrong with the credentials, whatever the adapter: half of a pair, no PEM, a key of another certificate."""
    found = _pairs(credentials)
    if not (found or credentials.authority or credentials.certificate):
        return ()
    try:
        context(credentials if not found else contract.Credentials(authority=credentials.authority), _ANY)
    except errors.InvalidConfiguration as error:
        found += error.problems
    return tuple(found)


_ANY = contract.Tls()


def _pairs(credentials: contract.Credentials) -> list[str]:
    found = []
    for one, other in (("username", "password"), ("certificate", "key")):
        given = {name: bool(getattr(credentials, name)) for name in (one, other)}
        if len(set(given.values())) > 1:
            there, missing = sorted(given, key=lambda name: not given[name])
            found.append(f"there is a {there} and no {missing}; give both or none")
    return found


def _trusting(authority: str, found: list[str]) -> ssl.SSLContext:
    """Trusts the authority alone, or the system's where there is none."""
    try:
        made = ssl.create_default_context(cadata=authority or None)
    except (ssl.SSLError, ValueError):
        made = None
    if made is not None and not (authority and not made.cert_store_stats()["x509"]):
        return made
    found.append("the authority is no PEM certificate; give it as -----BEGIN CERTIFICATE-----")
    return ssl.create_default_context()


def _present(made: ssl.SSLContext, credentials: contract.Credentials) -> list[str]:
    both = f"{credentials.certificate}\n{credentials.key}\n".encode()
    with os.fdopen(os.memfd_create("drawbar-tls", os.MFD_CLOEXEC), "wb") as file:
        file.write(both)
        file.flush()
        try:
            # A password would be asked for on the terminal.
            made.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password="")
        except (ssl.SSLError, ValueError):
            return ["certificate and key are no PEM, do not belong together, or the key has a password"]
    return []

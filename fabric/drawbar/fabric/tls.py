"""TLS contexts from credentials that stand in memory.

Python's ssl module reads private keys from files only. The key goes through an anonymous file in memory, which has no
name, is closed at once and never touches a disk.
"""

import os
import ssl

from drawbar.fabric import contract, errors, trust


def context(credentials: contract.Credentials, tls: contract.Tls) -> ssl.SSLContext:
    """Return the TLS context of a client of the fabric manager. The caller passes on `tls.server_name`.

    Raises:
        InvalidConfiguration: a certificate or key cannot be used; all problems are listed, none quotes them.
    """
    wrong: list[str] = []
    made = _build_trust(credentials.authority, wrong)
    trust.verify_as_go(made)
    if not tls.verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    if credentials.certificate or credentials.key:
        wrong += _present(made, credentials)
    if wrong:
        raise errors.InvalidConfiguration(wrong)
    return made


def problems(credentials: contract.Credentials) -> tuple[str, ...]:
    """Return the problems of credentials for any adapter: half of a pair, no PEM, or a key of another certificate."""
    wrong = _pairs(credentials)
    if not (wrong or credentials.authority or credentials.certificate):
        return ()
    try:
        context(credentials if not wrong else contract.Credentials(authority=credentials.authority), _ANY)
    except errors.InvalidConfiguration as error:
        wrong += error.problems
    return tuple(wrong)


_ANY = contract.Tls()


def _pairs(credentials: contract.Credentials) -> list[str]:
    wrong = []
    for first, other in (("username", "password"), ("certificate", "key")):
        is_present = {name: bool(getattr(credentials, name)) for name in (first, other)}
        if len(set(is_present.values())) > 1:
            there, missing = sorted(is_present, key=lambda name: not is_present[name])
            wrong.append(f"there is a {there} and no {missing}; give both or none")
    return wrong


def _build_trust(authority: str, wrong: list[str]) -> ssl.SSLContext:
    """Return a context that trusts only the authority, or the system's authorities if it is empty."""
    try:
        made = ssl.create_default_context(cadata=authority or None)
    except (ssl.SSLError, ValueError):
        made = None
    if made is not None and not (authority and not made.cert_store_stats()["x509"]):
        return made
    wrong.append("the authority is not a PEM certificate; give it as -----BEGIN CERTIFICATE-----")
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

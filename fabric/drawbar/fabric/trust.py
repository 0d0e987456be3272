"""The verification of certificates as Go and curl do it, so that Drawbar and kubectl take the same certificates.

OpenSSL's default wants the root of each chain, although an administrator may name an intermediate authority, as a cluster's
own authority often is. And from Python 3.13 on, `ssl.create_default_context` refuses certificates without key identifiers,
which the authorities of older clusters and of many management controllers issue.

This module imports nothing else of a fabric: every node daemon has it, and no fabric.
"""

import ssl


def verify_as_go(context: ssl.SSLContext) -> None:
    """Make the context take an authority that is not a root for one, without the strictness of Python 3.13."""
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT


def is_out_of_date(error: Exception) -> bool:
    """Return whether a verification failed because the certificate has expired or is not valid yet."""
    # X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL.
    return getattr(error, "verify_code", 0) in (9, 10)

"""The rules for names of Kubernetes objects (RFC 1123).

Source: k8s.io/apimachinery/pkg/util/validation.
"""

import re

LABEL_CHARS = 63
SUBDOMAIN_CHARS = 253
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABELS = re.compile(_LABEL)
_SUBDOMAINS = re.compile(rf"{_LABEL}(\.{_LABEL})*")


def is_label(text: str, most: int = LABEL_CHARS) -> bool:
    """Return whether a text is a DNS label of up to `most` characters, as the name of a namespace or device."""
    return len(text) <= most and _LABELS.fullmatch(text) is not None


def is_subdomain(text: str, most: int = SUBDOMAIN_CHARS) -> bool:
    """Return whether a text is a DNS subdomain of up to `most` characters, as the name of a node, claim or driver."""
    return len(text) <= most and _SUBDOMAINS.fullmatch(text) is not None

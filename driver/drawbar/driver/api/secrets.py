"""Secrets, of which only those are read that a Fabric names.

Source: `v1` Secret; `data` is base64.
"""

from drawbar.driver.api import meta


class Secret(meta.Struct, frozen=True):
    """A Secret whose content shows in no representation.

    Attributes:
        data: by key, base64.
    """

    metadata: meta.ObjectMeta
    data: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name})"

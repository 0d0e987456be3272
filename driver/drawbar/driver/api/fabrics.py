"""Fabrics: one fabric manager each, and what to do with its devices.

Source: `deploy/crds/fabrics.yaml`.
"""

from drawbar.driver.api import meta

API_VERSION = "drawbar.dev/v1alpha1"
KIND = "Fabric"

# A Fabric stays until its last device is back: without it nobody could detach them.
FINALIZER = "drawbar.dev/attachments"

# Condition types of the status.
CONNECTED = "Connected"
FEATURES_DROPPED = "FeaturesDropped"
HOSTS_MAPPED = "HostsMapped"
PUBLISHED = "Published"


class HostMapping(meta.Struct, frozen=True):
    """A fabric's host and the node it is."""

    host: str
    node: str


class Policy(meta.Struct, frozen=True):
    """How patient to be; all in seconds."""

    attach_timeout_seconds: int = 180
    probation_seconds: int = 300


class FabricSpec(meta.Struct, frozen=True):
    """How to reach the fabric manager and how its hosts map to nodes.

    A host that `hosts` does not name is the node of the same name, if there is one.
    """

    adapter: str
    endpoint: str
    parameters: dict[str, str] = {}
    timeout_seconds: int = 30
    hosts: tuple[HostMapping, ...] = ()
    policy: Policy = Policy()


class FabricStatus(meta.Struct, frozen=True):
    """What the controller sees."""

    conditions: tuple[meta.Condition, ...] = ()
    devices: int = 0
    attached: int = 0
    hosts: int = 0


class Fabric(meta.Struct, frozen=True):
    """One fabric manager."""

    metadata: meta.ObjectMeta
    spec: FabricSpec
    status: FabricStatus = FabricStatus()

    @property
    def deleting(self) -> bool:
        """Whether it goes once nothing is attached through it."""
        return self.metadata.deletion_timestamp is not None

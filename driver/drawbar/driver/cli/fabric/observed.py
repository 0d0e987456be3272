"""The operator's fabric, and the cluster's state about it, as values."""

from dataclasses import dataclass, field

import msgspec

from drawbar.driver.api import attachments, core, fabrics
from drawbar.fabric import contract


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster's state about a Fabric.

    Attributes:
        nodes: all nodes.
        attachments: the fabric's DeviceAttachments.
    """

    fabric: fabrics.Fabric
    nodes: tuple[core.Node, ...]
    attachments: tuple[attachments.DeviceAttachment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The access to a fabric manager.

    Attributes:
        name: the Fabric's name, or the path of the file.
        spec: the Fabric's spec, or the file's content.
        credentials: the credentials; never printed.
        cluster: None with a configuration file.
    """

    name: str
    spec: fabrics.FabricSpec
    credentials: contract.Credentials = field(default_factory=contract.Credentials, repr=False)
    cluster: Cluster | None = None

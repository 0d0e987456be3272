"""The fabric that an operator means, and what of the cluster concerns it, as values."""

from dataclasses import dataclass, field

from drawbar.driver.api import attachments, core, fabrics
from drawbar.fabric import contract


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What of the cluster concerns a Fabric object.

    Attributes:
        fabric: the object.
        nodes: all nodes.
        attachments: the fabric's DeviceAttachments.
    """

    fabric: fabrics.Fabric
    nodes: tuple[core.Node, ...]
    attachments: tuple[attachments.DeviceAttachment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """How to reach a fabric manager.

    Attributes:
        name: of the Fabric, or the path of the file.
        spec: of the Fabric, or what stands in the file.
        credentials: as whom; never printed.
        cluster: None with a configuration file.
    """

    name: str
    spec: fabrics.FabricSpec
    credentials: contract.Credentials = field(default_factory=contract.Credentials, repr=False)
    cluster: Cluster | None = None

"""What the negotiation reads besides pods and claims: classes, and PodSchedulingContexts. Pure.

Source: Kubernetes API reference, `resource.k8s.io/v1alpha2` and `v1alpha3`.
"""

import msgspec

from drawbar.driver.api import meta
from drawbar.mocks.claims import documents
from drawbar.mocks.scheduler import objects

# The API allows no more in `potentialNodes`, nor in `unsuitableNodes`.
NODES_LIMIT = 128


class ClassSpec(meta.Struct, frozen=True):
    """Content of a DeviceClass of `v1alpha3`, as far as a scheduler needs it for a driver's controller."""

    suitable_nodes: objects.NodeSelector | None = None


class Class(meta.Struct, frozen=True):
    """A ResourceClass of `v1alpha2`, whose fields are at the top, or a DeviceClass of `v1alpha3`."""

    metadata: meta.ObjectMeta
    driver_name: str = ""
    suitable_nodes: objects.NodeSelector | None = None
    structured_parameters: bool | None = None
    spec: ClassSpec = ClassSpec()

    @property
    def nodes(self) -> objects.NodeSelector | None:
        """The nodes that a claim of this class may be allocated for; None for all."""
        return self.suitable_nodes or self.spec.suitable_nodes


def selected_node(context: documents.Document | None) -> str:
    """The node that the drivers are to allocate for; empty where there is none yet."""
    return "" if context is None else str(context.spec.get("selectedNode") or "")


def potential_nodes(context: documents.Document | None) -> tuple[str, ...]:
    """The nodes that the drivers were asked about."""
    return () if context is None else tuple(context.spec.get("potentialNodes") or ())


def answers(context: documents.Document | None) -> dict[str, frozenset[str]]:
    """What the drivers said: the unsuitable nodes, by the pod's entry. No entry means no answer yet.

    Raises:
        msgspec.ValidationError: the context is not what the API allows.
    """
    if context is None:
        return {}
    converted = msgspec.convert(context.status.get("resourceClaims") or (), tuple[_Answer, ...])
    return {answer.name: frozenset(answer.unsuitable_nodes) for answer in converted}


class _Answer(meta.Struct, frozen=True):
    name: str
    unsuitable_nodes: tuple[str, ...] = ()

"""The further objects of the negotiation: classes, and PodSchedulingContexts. Pure.

Source: Kubernetes API reference, `resource.k8s.io/v1alpha2` and `v1alpha3`.
"""

import msgspec

from drawbar.mocks.claims import documents
from drawbar.mocks.kube import meta
from drawbar.mocks.scheduler import objects

# The API's limit for `potentialNodes` and `unsuitableNodes`.
NODES_LIMIT = 128


class ClassSpec(meta.Struct, frozen=True):
    """The part of a `v1alpha3` DeviceClass that matters for a driver's controller."""

    suitable_nodes: objects.NodeSelector | None = None


class Class(meta.Struct, frozen=True):
    """A ResourceClass of `v1alpha2`, with fields at the top, or a DeviceClass of `v1alpha3`."""

    metadata: meta.ObjectMeta
    driver_name: str = ""
    suitable_nodes: objects.NodeSelector | None = None
    structured_parameters: bool | None = None
    spec: ClassSpec = ClassSpec()

    @property
    def nodes(self) -> objects.NodeSelector | None:
        """Return the possible nodes for claims of this class; None for all."""
        return self.suitable_nodes or self.spec.suitable_nodes


def selected_node(context: documents.Document | None) -> str:
    """Return the node selected for the drivers' allocation; empty if there is none yet."""
    return "" if context is None else str(context.spec.get("selectedNode") or "")


def potential_nodes(context: documents.Document | None) -> tuple[str, ...]:
    """Return the nodes offered to the drivers."""
    return () if context is None else tuple(context.spec.get("potentialNodes") or ())


def answers(context: documents.Document | None) -> dict[str, frozenset[str]]:
    """Return the drivers' answers: the unsuitable nodes, by the pod's entry. A missing entry means no answer yet.

    Raises:
        msgspec.ValidationError: the context violates the API.
    """
    if context is None:
        return {}
    converted = msgspec.convert(context.status.get("resourceClaims") or (), tuple[_Answer, ...])
    return {answer.name: frozenset(answer.unsuitable_nodes) for answer in converted}


class _Answer(meta.Struct, frozen=True):
    name: str
    unsuitable_nodes: tuple[str, ...] = ()

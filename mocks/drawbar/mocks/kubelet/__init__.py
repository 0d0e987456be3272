"""A double of the kubelet: plugin registration, device preparation, and a container runtime that only writes files."""

from typing import TYPE_CHECKING, Any

from drawbar.mocks.kubelet.settings import Settings

if TYPE_CHECKING:
    from drawbar.mocks.kubelet.agent import Kubelet
    from drawbar.mocks.kubelet.node import NodeSpec
    from drawbar.mocks.kubelet.server import Kubelets, serving

__all__ = ["serving", "Kubelets", "Kubelet", "NodeSpec", "Settings"]


def __getattr__(name: str) -> Any:
    """Import the kubelet on first access: a caller that reads only the settings does not load it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from drawbar.mocks.kubelet import agent, node, server

    return getattr({"Kubelet": agent, "NodeSpec": node}.get(name, server), name)

"""Double of the kubelet: plugin registration, device preparation, and a container runtime that only writes files."""

from drawbar.mocks.kubelet.node import NodeSpec
from drawbar.mocks.kubelet.server import Kubelet, serving
from drawbar.mocks.kubelet.settings import Settings

__all__ = ["serving", "Kubelet", "NodeSpec", "Settings"]

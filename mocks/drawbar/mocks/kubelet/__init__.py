"""Double of the kubelet: plugin registration, device preparation, and a container runtime that only writes files."""

from drawbar.mocks.kubelet.agent import Kubelet
from drawbar.mocks.kubelet.node import NodeSpec
from drawbar.mocks.kubelet.server import Kubelets, serving
from drawbar.mocks.kubelet.settings import Settings

__all__ = ["serving", "Kubelets", "Kubelet", "NodeSpec", "Settings"]

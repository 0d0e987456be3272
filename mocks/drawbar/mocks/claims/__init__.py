"""Double of the claim controller of kube-controller-manager, and typed views of pods and claims.

The scheduler and kubelet doubles build on `documents` and `events` of this package.
"""

from drawbar.mocks.claims.server import serving

__all__ = ["serving"]

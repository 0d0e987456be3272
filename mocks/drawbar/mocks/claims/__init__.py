"""Double of the claim controller of kube-controller-manager, and the typed views of pods and claims it shares.

The scheduler and kubelet doubles build on `documents` and `events` of this package.
"""

from drawbar.mocks.claims.server import serving

__all__ = ["serving"]

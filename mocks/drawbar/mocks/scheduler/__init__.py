"""A double of kube-scheduler with its DynamicResources plugin."""

from drawbar.mocks.scheduler.server import serving
from drawbar.mocks.scheduler.settings import Settings

__all__ = ["serving", "Settings"]

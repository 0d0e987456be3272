"""What goes wrong with real components.

RealClusterError
    Unavailable       this machine lacks something; the message names it, and where to get it
    ComponentFailed   a component ended, or was not ready in time; the message names its log
"""


class RealClusterError(Exception):
    """The root of this tree; its text is one sentence with the remedy."""


class Unavailable(RealClusterError):
    """This machine lacks something that is needed."""


class ComponentFailed(RealClusterError):
    """A component ended by itself, or did not become ready by its deadline."""

"""What keeps the kubelet double from running a pod.

KubeletError
├── PrepareError        the plugin, a claim, or the answer is not as it must be: event, then retry
└── RuntimeFailure      the container runtime could not make the container: event, then retry
"""


class KubeletError(Exception):
    """Base; the message is for the pod's event."""


class PrepareError(KubeletError):
    """Devices could not be prepared or unprepared."""


class RuntimeFailure(KubeletError):
    """The container could not be created."""

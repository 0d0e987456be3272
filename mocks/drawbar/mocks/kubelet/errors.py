"""The errors of the kubelet double.

KubeletError
├── RegistrationError       a plugin is refused; the message is for the plugin
│   └── EndpointTaken       its endpoint is registered already: not tried again before its socket is replaced
├── CallFailed              a plugin's call failed as a whole; the message is gRPC's
├── PrepareError            the plugin, a claim, or the answer is invalid: event, then retry
├── RuntimeFailure          the container runtime could not make the container: event, then retry
└── StateError              a state file cannot be used: the kubelet does not start (also a MockError: one sentence)
"""

from drawbar.mocks import errors as mock_errors


class KubeletError(Exception):
    """The base of the errors; by default the message is for the pod's event."""


class RegistrationError(KubeletError):
    """The kubelet refuses the plugin."""


class EndpointTaken(RegistrationError):
    """Another registration of the driver has that endpoint."""


class CallFailed(KubeletError):
    """A call to a plugin failed as a whole."""


class PrepareError(KubeletError):
    """Devices could not be prepared or unprepared."""


class RuntimeFailure(KubeletError):
    """The container could not be created."""


class StateError(KubeletError, mock_errors.MockError):
    """A file required for the kubelet's start is broken."""

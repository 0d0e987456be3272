"""What each kubelet release speaks, and which of a plugin's services it takes.

Pure. Source: pkg/kubelet/cm/dra/plugin and pkg/features of Kubernetes 1.32 to 1.37, as described by the fact pages.

Not emulated: the protocol of 1.31 and before, which 1.32 still speaks with a plugin that advertises only `1.0.0`.
"""

from collections.abc import Sequence

from drawbar.mocks.kubelet import errors

PLUGIN_TYPE = "DRAPlugin"
V1 = "v1.DRAPlugin"
V1BETA1 = "v1beta1.DRAPlugin"
HEALTH_V1 = "v1.DRAResourceHealth"
HEALTH_V1ALPHA1 = "v1alpha1.DRAResourceHealth"

SERVICES_BY_RELEASE = {
    "1.32": (V1BETA1,),
    "1.33": (V1BETA1,),
    "1.34": (V1, V1BETA1),
    "1.35": (V1, V1BETA1),
    "1.36": (V1, V1BETA1),
    "1.37": (V1, V1BETA1),
}
# Up to 1.36 the stream is opened whatever the plugin advertises; 1.37 takes what the plugin has.
_HEALTH_UNASKED = {"1.34", "1.35", "1.36"}
_HEALTH_NEGOTIATED = {"1.37": (HEALTH_V1, HEALTH_V1ALPHA1)}
# The feature gate ResourceHealthStatus is alpha and off before.
_HEALTH_BY_DEFAULT = {"1.36", "1.37"}
_HEALTH_TIMEOUT_KNOWN = {"1.35", "1.36", "1.37"}
_HEALTH_MESSAGE_KNOWN = {"1.36", "1.37"}


def service(release: str, driver: str, endpoint: str, supported: Sequence[str]) -> str:
    """The service to call: the first of the plugin's list that this kubelet knows.

    Raises:
        errors.RegistrationError: there is none; the message is the kubelet's to the plugin.
    """
    known = SERVICES_BY_RELEASE[release]
    found = next((version for version in supported if version in known), None)
    if found is not None:
        return found
    if supported:
        reason = (
            f"none of services supported by the plugin ({_quoted(supported)}) are supported by the kubelet "
            f"({_quoted(known)})"
        )
    else:
        reason = "empty list of supported gRPC services (aka supported versions)"
    raise errors.RegistrationError(
        f"invalid supported gRPC versions of DRA driver plugin {driver} at endpoint {endpoint}: {reason}"
    )


def health_is_on(release: str) -> bool:
    """Whether this release watches the health of devices unless its operator says otherwise."""
    return release in _HEALTH_BY_DEFAULT


def health_service(release: str, supported: Sequence[str]) -> str | None:
    """The health service to open a stream to, or None."""
    if release in _HEALTH_UNASKED:
        return HEALTH_V1ALPHA1
    known = _HEALTH_NEGOTIATED.get(release, ())
    return next((version for version in supported if version in known), None)


def knows_health_timeout(release: str) -> bool:
    """Whether `health_check_timeout_seconds` of a report is read."""
    return release in _HEALTH_TIMEOUT_KNOWN


def knows_health_message(release: str) -> bool:
    """Whether the message of a report is shown in the pod's status."""
    return release in _HEALTH_MESSAGE_KNOWN


def _quoted(words: Sequence[str]) -> str:
    return "[" + " ".join(f'"{word}"' for word in words) + "]"

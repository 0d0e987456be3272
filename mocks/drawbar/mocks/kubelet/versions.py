"""The protocols of each kubelet release, and the choice among a plugin's services.

Kubelets before 1.32 have no services. A plugin must have a version 1.x, and is called in its kubelet's protocol. From
1.28 to 1.30 that is `v1alpha3`, or `v1alpha2` if the plugin lacks it.

Pure. Source: pkg/kubelet/cm/dra/plugin and pkg/features of Kubernetes 1.27 to 1.37, as described by the fact pages.
Limit: 1.32 still uses 1.31's protocol with a plugin that advertises only `1.0.0`; that is not emulated.
"""

import re
from collections.abc import Sequence

from drawbar.mocks.kubelet import errors

PLUGIN_TYPE = "DRAPlugin"
V1 = "v1.DRAPlugin"
V1BETA1 = "v1beta1.DRAPlugin"
# The names of their folders in Kubernetes' source; see `protocols`.
V1ALPHA4 = "v1alpha4.Node"
V1ALPHA3 = "v1alpha3.Node"
V1ALPHA2 = "v1alpha2.Node"
HEALTH_V1 = "v1.DRAResourceHealth"
HEALTH_V1ALPHA1 = "v1alpha1.DRAResourceHealth"

SERVICES_BY_RELEASE = {
    "1.27": (V1ALPHA2,),
    "1.28": (V1ALPHA3,),
    "1.29": (V1ALPHA3,),
    "1.30": (V1ALPHA3,),
    "1.31": (V1ALPHA4,),
    "1.32": (V1BETA1,),
    "1.33": (V1BETA1,),
    "1.34": (V1, V1BETA1),
    "1.35": (V1, V1BETA1),
    "1.36": (V1, V1BETA1),
    "1.37": (V1, V1BETA1),
}
# The releases with handles in claims of `v1alpha2`, and the one with claims of `v1alpha3`.
_HANDLES = {"1.27", "1.28", "1.29", "1.30"}
_CLASSIC = _HANDLES | {"1.31"}
_IMPATIENT_SECONDS = 10.0
_IMPATIENT = {"1.27"}
_VERSION = re.compile(r"v?1(\.[0-9]+)+.*")
# The feature gate ResourceHealthStatus is alpha and off before. 1.36 opens the stream unasked; 1.37 uses a service
# advertised by the plugin.
_HEALTH_UNASKED = {"1.36"}
_HEALTH_NEGOTIATED = {"1.37": (HEALTH_V1, HEALTH_V1ALPHA1)}


def service(release: str, driver: str, endpoint: str, supported: Sequence[str]) -> str:
    """Return the service to call: the first of the plugin's list that this kubelet supports.

    Raises:
        errors.RegistrationError: there is none; the message is for the plugin.
    """
    services = SERVICES_BY_RELEASE[release]
    if is_classic(release):
        return _classic_service(services[0], driver, endpoint, supported)
    common = next((version for version in supported if version in services), None)
    if common is not None:
        return common
    if supported:
        reason = (
            f"none of services supported by the plugin ({_quote_words(supported)}) are supported by the kubelet "
            f"({_quote_words(services)})"
        )
    else:
        reason = "empty list of supported gRPC services (aka supported versions)"
    raise errors.RegistrationError(
        f"invalid supported gRPC versions of DRA driver plugin {driver} at endpoint {endpoint}: {reason}"
    )


def is_classic(release: str) -> bool:
    """Return true if controllers allocate claims, and this double reads them as `v1alpha2` or `v1alpha3`.

    Such releases refuse a second instance of a driver, and their slices are not wiped here.
    """
    return release in _CLASSIC


def has_handles(release: str) -> bool:
    """Return true if claims are allocated by handles (`v1alpha2`).

    Such kubelets also skip claims without a container.
    """
    return release in _HANDLES


def claim_version(release: str) -> str:
    """Return the API version for reading claims."""
    if has_handles(release):
        return "v1alpha2"
    return "v1alpha3" if is_classic(release) else "v1"


def call_timeout_seconds(release: str, usual: float) -> float:
    """Return the time limit of a call to a plugin, in seconds."""
    return min(usual, _IMPATIENT_SECONDS) if release in _IMPATIENT else usual


def _classic_service(service_: str, driver: str, endpoint: str, supported: Sequence[str]) -> str:
    if any(_VERSION.fullmatch(version) for version in supported):
        return service_
    reason = "empty list for supported versions"
    if supported:
        reason = (
            f"none of the versions are supported: could not find a highest supported version from versions "
            f"([{' '.join(supported)}]) reported by this plugin"
        )
    raise errors.RegistrationError(f"invalid versions of plugin {driver} at endpoint {endpoint}: {reason}")


def watches_health(release: str) -> bool:
    """Return true if the release opens health streams, and shows health in the status of pods."""
    return release in _HEALTH_UNASKED or release in _HEALTH_NEGOTIATED


def health_service(release: str, supported: Sequence[str]) -> str | None:
    """Return the health service to open a stream to, or None."""
    if release in _HEALTH_UNASKED:
        return HEALTH_V1ALPHA1
    services = _HEALTH_NEGOTIATED.get(release, ())
    return next((version for version in supported if version in services), None)


def _quote_words(words: Sequence[str]) -> str:
    return "[" + " ".join(f'"{word}"' for word in words) + "]"

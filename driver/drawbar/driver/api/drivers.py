"""Several Drawbars in one cluster, each under a driver name of its own, with separate objects.

A Fabric and a DeviceAttachment name their driver, and drivers of other names ignore them. Some names would still be
shared: those of field managers, of the Lease and of the Role, and the value of node labels. The default driver uses
the plain names; every other driver adds its own name to them.
"""

from drawbar.driver.api import dnsnames

DEFAULT = "drawbar.dev"
NAME_LIMIT = 63


def problems(name: str) -> list[str]:
    """Return the problems of the name from the option `--driver-name`."""
    if dnsnames.is_subdomain(name, NAME_LIMIT):
        return []
    return [f"--driver-name {name!r} is not a DNS subdomain of at most {NAME_LIMIT} characters"]


def selector(driver: str) -> str:
    """Return the field selector of a driver's Fabrics, DeviceAttachments or ResourceSlices."""
    return f"spec.driver={driver}"


def manager(base: str, driver: str) -> str:
    """Return the driver's field manager. A server-side apply removes the earlier fields of the same manager."""
    return base if driver == DEFAULT else f"{base}/{driver}"


def resource(base: str, driver: str) -> str:
    """Return the name of an object that exists once for each driver."""
    return base if driver == DEFAULT else f"{base}-{driver}"


def label_value(driver: str) -> str:
    """Return the value of the driver's node labels; a label with another value belongs to another driver."""
    return "true" if driver == DEFAULT else driver

"""Several Drawbars in one cluster, each under a driver's name of its own: how what they write is kept apart.

A Fabric and a DeviceAttachment name their driver, and whoever has another name leaves them alone. What is left are
names that all would share: those of field managers, of the Lease and of the Role, and the value of node labels. The
default driver has the plain ones; every other has its own name in them.
"""

import re

DEFAULT = "drawbar.dev"
NAME_LIMIT = 63
# A DNS subdomain, as Kubernetes asks of names of drivers and nodes.
SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


def problems(name: str) -> list[str]:
    """What is wrong with the name that the option `--driver-name` gives, if anything is."""
    if SUBDOMAIN.fullmatch(name) and len(name) <= NAME_LIMIT:
        return []
    return [f"--driver-name {name!r} is not a DNS subdomain of at most {NAME_LIMIT} characters"]


def selector(driver: str) -> str:
    """The field selector of the Fabrics, DeviceAttachments or ResourceSlices of a driver."""
    return f"spec.driver={driver}"


def manager(base: str, driver: str) -> str:
    """The field manager: an apply takes back what its manager, whoever that was, applied to the object before."""
    return base if driver == DEFAULT else f"{base}/{driver}"


def resource(base: str, driver: str) -> str:
    """The name of an object that each driver has one of."""
    return base if driver == DEFAULT else f"{base}-{driver}"


def label_value(driver: str) -> str:
    """The value of the driver's node labels: what carries another value is another's."""
    return "true" if driver == DEFAULT else driver

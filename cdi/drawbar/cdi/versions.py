"""The lowest version of the specification that expresses a content; pure.

Older runtimes refuse a whole file of a newer version, and newer ones a file whose version is below what it uses.

| version | what it added |
|---|---|
| 0.3.0 | the first release |
| 0.4.0 | `type` of a mount |
| 0.5.0 | `hostPath` of a device node; names of devices that begin with a digit |
| 0.6.0 | annotations of the file and of a device; dots in the class, the second half of the kind |
| 0.7.0 | `intelRdt`, `additionalGids` |
| 0.8.0, 1.0.0 | nothing in the format: the reference library changed |
| 1.1.0 | `netDevices`; `schemata` and `enableMonitoring` of `intelRdt`, from which `enableCMT` and `enableMBM` went |

Source: Container Device Interface specification, SPEC.md, "Released versions", and specs-go/version.go, which computes
the same from the same fields.
"""

import functools
from collections.abc import Iterator

from drawbar.cdi import errors, rules, spec

# In the order of their release.
KNOWN = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
BASE = KNOWN[0]


def lowest(content: spec.Spec) -> str:
    """The lowest cdiVersion with all that the content uses.

    Raises:
        errors.InvalidSpec: no version has all of it.
    """
    found = max((BASE, *_needed(content)), key=KNOWN.index)
    if found == "1.1.0":
        for rdt in (edits.intel_rdt for edits in content.all_edits()):
            if rdt is not None and (rdt.enable_cmt or rdt.enable_mbm):
                raise errors.InvalidSpec(
                    f"CDI spec {content.kind}: enableCMT and enableMBM are not in version 1.1.0, which the rest "
                    "needs; use enableMonitoring"
                )
    return found


def covers(version: str, content: spec.Spec) -> bool:
    """Whether a file of that known version may hold the content."""
    return KNOWN.index(version) >= KNOWN.index(lowest(content))


def _needed(content: spec.Spec) -> Iterator[str]:
    if any(not (device.name[0].isascii() and device.name[0].isalpha()) for device in content.devices):
        # A runtime that reads an older version takes such a name for malformed and drops the whole file.
        yield "0.5.0"
    if "." in content.kind.partition("/")[2]:
        yield "0.6.0"
    if content.annotations or any(device.annotations for device in content.devices):
        yield "0.6.0"
    for edits in content.all_edits():
        yield from _needed_by(edits)


@functools.lru_cache(maxsize=rules.EDITS_KEPT)
def _needed_by(edits: spec.ContainerEdits) -> tuple[str, ...]:
    return tuple(_each_needed_by(edits))


def _each_needed_by(edits: spec.ContainerEdits) -> Iterator[str]:
    rdt = edits.intel_rdt
    if any(mount.type for mount in edits.mounts):
        yield "0.4.0"
    if any(node.host_path for node in edits.device_nodes):
        yield "0.5.0"
    if rdt is not None or edits.additional_gids:
        yield "0.7.0"
    if edits.net_devices or (rdt is not None and (rdt.schemata or rdt.enable_monitoring)):
        yield "1.1.0"

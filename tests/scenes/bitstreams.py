"""Bitstreams for DFL cards, as OPAE's packager makes them."""

import json

from drawbar.mocks.sysfs import dfl

GUID = b"XeonFPGA\xb7GBSv001"
DESIGN = b"the bits of a design"


def gbs(design=DESIGN, *, version=1, metadata=None, **image):
    """Return a file for the mocked hosts' cards, with further members of `afu-image`; or with these bytes as metadata."""
    reported = {"interface-uuid": uuid(dfl.INTERFACE), "magic-no": 488605312, "power": 0} | image
    text = json.dumps({"version": version, "platform-name": "DCP", "afu-image": reported}).encode()
    metadata = text if metadata is None else metadata
    return GUID + len(metadata).to_bytes(4, "little") + metadata + design


def uuid(digits):
    """Return 32 digits with the dashes of a UUID."""
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

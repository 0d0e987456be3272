"""The registry of device classes; it maps a PCI function to its class.

Class codes come from the PCI Code and ID Assignment Specification. The model of a function takes precedence (`models`).
"""

import importlib

from drawbar.driver.node.classes import generic, models
from drawbar.fabric.classes import OFFERED_CLASSES, DeviceClass


def _load(device_class: str) -> generic.Generic:
    """Return an instance of the class, from the module of its name: `cxl_memory.CxlMemory` for `cxl-memory`."""
    module = importlib.import_module(f"{__package__}.{device_class.replace('-', '_')}")
    made: generic.Generic = getattr(module, device_class.title().replace("-", ""))()
    return made


CLASSES = tuple(_load(listed) for listed in OFFERED_CLASSES if listed is not DeviceClass.OTHER)
"""Every offered class except `other`; each has a module in this package."""
_OTHER = generic.Generic()
_SHOWN = (
    generic.Generic(device_class=DeviceClass.BRIDGE, class_codes=("06",)),
    generic.Generic(device_class=DeviceClass.STORAGE, class_codes=("01",)),
)
generic.OFFERED.update((offered.device_class, offered) for offered in CLASSES)
_BY_NAME = {str(offered.device_class): offered for offered in CLASSES}
_BY_CODE = {code: shown for shown in (*CLASSES, *_SHOWN) for code in shown.class_codes}


def by_name(device_class: str) -> generic.Generic:
    """Return the rules for the class of that name; an unknown class has those of `other`."""
    return _BY_NAME.get(device_class, _OTHER)


def classify(class_code: int, vendor: int, device: int, driver: str | None = None) -> DeviceClass:
    """Return the class of a function, from its model (`models`) or else from its class code.

    Args:
        class_code: 24 bits: base class, subclass, programming interface.
        vendor: PCI vendor ID.
        device: PCI device ID.
        driver: the bound kernel driver, or None.
    """
    digits = f"{class_code:06x}"
    by_model = models.by_model(digits, vendor, device, driver)
    if by_model is not None:
        return by_model
    by_code = (_BY_CODE[digits[:end]] for end in (6, 4, 2) if digits[:end] in _BY_CODE)
    return next(by_code, _OTHER).device_class

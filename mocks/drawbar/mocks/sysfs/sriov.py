"""The virtual functions of a card: what appears when their number is written to `sriov_numvfs`.

The order is that of `sriov_enable` and `sriov_disable` (drivers/pci/iov.c); no recording has it. A virtual function has
the card's class and vendor, no serial number, and a link of which the kernel reads nothing but the maximum.
"""

from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import cards, config_space, functions
from drawbar.mocks.sysfs.device import MockDevice
from drawbar.mocks.sysfs.functions import Ids
from drawbar.mocks.sysfs.kobjects import Kobject, trigger, writable
from drawbar.mocks.sysfs.steps import Add, Bind, Change, Join, Step, Write


def steps(seat: cards.Seat, device: MockDevice, amount: int) -> tuple[Step, ...]:
    """What happens when a card without virtual functions gets this many, in order."""
    if amount == 0:
        return ()
    owner = cards.function(seat, device)
    virtuals: list[Step] = []
    for index in range(amount):
        virtual = _function(seat, device, index)
        virtuals += [
            Add(kobject=virtual),
            Join(place=f"{owner.path}/virtfn{index}", target=virtual.path),
            Join(place=f"{virtual.path}/physfn", target=owner.path),
            Change(kobject=virtual),
        ]
        if virtual.driver is not None:
            if device.device_class is DeviceClass.NIC:
                virtuals.append(Add(kobject=cards.interface(virtual, seat.instance, index)))
            virtuals.append(Bind(kobject=virtual))
    numbers = {"sriov_numvfs": writable(str(amount))}
    return (
        *virtuals,
        Write(folder=owner.path, files=numbers, undone={"sriov_numvfs": writable("0")}),
        Change(kobject=owner),
    )


def addresses(seat: cards.Seat, amount: int) -> tuple[str, ...]:
    """The addresses of so many virtual functions, in order."""
    # Offset and stride are 1: the first virtual function follows the card's own, seven of them, then the next device.
    places = (divmod(index + 1, 8) for index in range(amount))
    return tuple(f"0000:{seat.bus:02x}:{number:02x}.{function}" for number, function in places)


def _function(seat: cards.Seat, device: MockDevice, index: int) -> Kobject:
    ids = Ids(vendor=device.vendor, device=device.vf_device or device.device, class_code=device.class_code)
    address = addresses(seat, index + 1)[index]
    config = config_space.endpoint(
        vendor=0xFFFF,  # a virtual function answers no ids of its own (9.3.4.1.1)
        device=0xFFFF,
        class_code=ids.class_code,
        subsystem=ids.subsystem,
        serial_number=None,
    )
    return Kobject(
        path=f"{seat.place.port}/{address}",
        subsystem="pci",
        subsystem_path="bus/pci",
        uevent=functions.uevent(ids, address),
        files={
            **functions.files(ids, config=config, locality=seat.place.locality),
            **functions.link_files(
                current=("Unknown", "0"), fastest_gts=device.link_speed_gts, widest=device.link_width
            ),
            "reset": trigger(),
            "reset_method": writable("flr"),
        },
        driver=device.vf_driver,
    )

"""The virtual functions of a card; they appear when their number is written to `sriov_numvfs`.

The order is that of `sriov_enable` and `sriov_disable` (drivers/pci/iov.c); there is no recording of it. A virtual
function has the card's class and vendor, and no serial number. The kernel reads only the maximum of its link.
"""

from collections.abc import Mapping

from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import cards, config_space, functions, vfio
from drawbar.mocks.sysfs.device import MockDevice
from drawbar.mocks.sysfs.functions import Ids
from drawbar.mocks.sysfs.kobjects import Kobject, trigger, writable
from drawbar.mocks.sysfs.steps import Add, Bind, Change, Join, Step, Write


def steps(
    seat: cards.Seat, device: MockDevice, amount: int, drivers: Mapping[int, str] | None = None
) -> tuple[Step, ...]:
    """Return the steps of giving virtual functions to a card without any, in order.

    Args:
        seat: the card's seat.
        device: the card.
        amount: the number of virtual functions.
        drivers: other drivers than the usual one, by number of the virtual function; "" for none.
    """
    if amount == 0:
        return ()
    owner = cards.function(seat, device)
    virtuals: list[Step] = []
    for index in range(amount):
        virtual = function(seat, device, index, drivers)
        virtuals += [
            Add(kobject=virtual),
            Join(path=f"{owner.path}/virtfn{index}", target=virtual.path),
            Join(path=f"{virtual.path}/physfn", target=owner.path),
            Change(kobject=virtual),
        ]
        virtuals += driver_steps(seat, device, index, drivers)
    numbers = {"sriov_numvfs": writable(str(amount))}
    return (
        *virtuals,
        Write(folder=owner.path, files=numbers, undone={"sriov_numvfs": writable("0")}),
        Change(kobject=owner),
    )


def addresses(seat: cards.Seat, amount: int) -> tuple[str, ...]:
    """Return the addresses of the first `amount` virtual functions, in order."""
    # Offset and stride are 1: seven virtual functions follow the card's own function, then the next device begins.
    positions = (divmod(index + 1, 8) for index in range(amount))
    bus = seat.address.rpartition(":")[0]
    return tuple(f"{bus}:{number:02x}.{function}" for number, function in positions)


def driver_steps(
    seat: cards.Seat, device: MockDevice, index: int, drivers: Mapping[int, str] | None = None
) -> tuple[Step, ...]:
    """Return the steps of binding a virtual function's driver, in order; empty without a driver."""
    virtual = function(seat, device, index, drivers)
    if virtual.driver is None:
        return ()
    has_interface = device.device_class is DeviceClass.NIC and virtual.driver != cards.GUEST_DRIVER
    interfaces = (Add(kobject=cards.interface(virtual, seat.instance, index)),) if has_interface else ()
    is_guest = virtual.driver == cards.GUEST_DRIVER and seat.iommu is not None
    group = vfio.steps(virtual, iommu=bool(seat.iommu)) if is_guest else ()
    return (*interfaces, *group, Bind(kobject=virtual))


def function(
    seat: cards.Seat, device: MockDevice, index: int, drivers: Mapping[int, str] | None = None
) -> Kobject:
    """Return the virtual function of the number."""
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
        path=f"{seat.path.rpartition('/')[0]}/{address}",
        subsystem="pci",
        subsystem_path="bus/pci",
        uevent=functions.uevent(ids, address),
        files={
            **functions.files(ids, config=config, locality=seat.slot.locality),
            **functions.link_files(
                current=("Unknown", "0"), fastest_gts=device.link_speed_gts, widest=device.link_width
            ),
            "reset": trigger(),
            "reset_method": writable("flr"),
        },
        driver=(drivers or {}).get(index, device.vf_driver) or None,
    )

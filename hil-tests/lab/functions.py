"""Switches the virtual functions of an NVMe controller on: run in a guest, standard library only.

    python -m lab.functions /dev/nvme0 2

A virtual function comes up without queues and interrupts, so no driver takes it. Each gets two queues and an interrupt
of the controller's flexible ones here, which is what `nvme virt-mgmt` does; then a driver can be asked for.

Source: NVM Express Base Specification 2.0, 5.22 Virtualization Management; include/uapi/linux/nvme_ioctl.h.
"""

import fcntl
import os
import struct
import sys

NVME_IOCTL_ADMIN_CMD = 0xC0484E41
VIRTUALIZATION_MANAGEMENT = 0x1C
QUEUES, INTERRUPTS = 0, 1
OFFLINE, ASSIGN, ONLINE = 7, 8, 9
_COMMAND = struct.Struct("<BBHIIIQQ10I")


def main(device: str, amount: str) -> None:
    """Switch that many functions on, in order."""
    controller = os.open(device, os.O_RDWR)
    try:
        for number in range(1, int(amount) + 1):
            _manage(controller, number, OFFLINE)
            _manage(controller, number, ASSIGN, QUEUES, 2)
            _manage(controller, number, ASSIGN, INTERRUPTS, 1)
            _manage(controller, number, ONLINE)
    finally:
        os.close(controller)


def _manage(controller: int, number: int, action: int, resource: int = 0, amount: int = 0) -> None:
    words = (0, 0, number << 16 | resource << 8 | action, amount, 0, 0, 0, 0, 0, 0)
    status = fcntl.ioctl(
        controller,
        NVME_IOCTL_ADMIN_CMD,
        bytearray(_COMMAND.pack(VIRTUALIZATION_MANAGEMENT, 0, 0, 0, 0, 0, 0, 0, *words)),
    )
    if status != 0:
        raise SystemExit(f"error: the controller answers {status:#x} to action {action} on function {number}")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The `qemu` adapter: virtual machines as hosts, their PCIe root ports as ports, QEMU's own devices as the pool."""

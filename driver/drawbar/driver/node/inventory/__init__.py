"""The node's PCI and CXL devices as values, and their unprivileged reading from sysfs."""

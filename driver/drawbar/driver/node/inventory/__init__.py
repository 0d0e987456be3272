"""The node's PCI and CXL devices as values, and how each of them is read from sysfs, without privilege."""

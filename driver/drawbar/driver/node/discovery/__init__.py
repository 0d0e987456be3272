"""The node's devices: read once from sysfs, then kept current by uevents."""

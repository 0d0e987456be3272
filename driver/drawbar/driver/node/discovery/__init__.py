"""Everything that this node has: read once from sysfs, then kept current by uevents."""

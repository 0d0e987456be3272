"""The node daemon's work on each DeviceAttachment of its node."""

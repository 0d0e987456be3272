"""What the node daemon does for each DeviceAttachment of its node."""

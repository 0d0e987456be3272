"""From an allocated claim to an attached device, and back."""

"""Claims that are allocated at once, by the controller, from devices that are reserved for it."""

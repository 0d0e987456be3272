"""`drawbar demo`: the whole way of a device, shown live on this machine."""

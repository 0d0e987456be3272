"""The node daemon: inventory, uevents and the kubelet plugin."""

"""What runs on a node: inventory, uevents and the kubelet plugin."""

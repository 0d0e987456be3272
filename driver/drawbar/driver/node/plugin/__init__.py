"""The kubelet's side of the node daemon: registration and the DRA service."""

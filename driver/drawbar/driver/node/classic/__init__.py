"""What the node daemon does otherwise on clusters of Kubernetes 1.31 and before, which allocate by a controller."""

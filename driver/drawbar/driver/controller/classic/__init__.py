"""The controller of classic dynamic resource allocation, Kubernetes 1.27 to 1.31 (KEP-3063)."""

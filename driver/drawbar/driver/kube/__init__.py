"""The client of the Kubernetes API server: configuration, requests, list-and-watch caches."""

"""The operation of any daemon: metrics, probes, and counts of its requests to the API server."""

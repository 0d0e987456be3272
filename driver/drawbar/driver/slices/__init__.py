"""ResourceSlices of both daemons: desired pools, minimal writes, and the fields kept by the API server."""

"""ResourceSlices as both daemons publish them: desired pools, minimal writes, and what the API server keeps."""

"""`/healthz`, `/readyz` and `/metrics` of a running daemon, and the client of `drawbar node --check`."""

"""`/healthz`, `/readyz` and `/metrics` of a running daemon, and the client that `--check` asks with."""

"""The claim controller double's part in classic DRA."""

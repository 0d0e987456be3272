"""The additional work of the claim controller double with classic DRA."""

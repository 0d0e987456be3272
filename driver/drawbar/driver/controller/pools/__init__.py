"""The pools of fabric devices: what is published, and how."""

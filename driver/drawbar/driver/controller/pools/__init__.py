"""The pools of fabric devices: their content, and their publication."""

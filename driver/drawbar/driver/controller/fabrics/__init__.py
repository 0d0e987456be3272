"""The fabrics: connections to their managers and what they report."""

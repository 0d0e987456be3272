"""The fabrics: connections to their managers, and the managers' reports."""

"""Container Device Interface: the specification's model, the lowest version that expresses it, atomic files."""

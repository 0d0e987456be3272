"""The verbs of operators, one module each: its options, and what it prints."""

"""The verbs of the `drawbar` program."""

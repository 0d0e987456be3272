"""The rules for objects, by kind; pure functions that yield the broken ones."""

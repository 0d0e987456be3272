"""Rules that objects must keep, by kind; pure functions that yield what is broken."""

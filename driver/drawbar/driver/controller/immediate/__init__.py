"""Immediate allocation: the controller gives reserved devices to claims at once."""

"""Offers, the entries of ResourceSlices for claims; one module for each kind."""

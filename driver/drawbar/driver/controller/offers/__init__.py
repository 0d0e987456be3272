"""Offers: what ResourceSlices list and claims are given, one module for each kind."""

"""Adapters that provide the parts of offers at a fabric manager, one for each kind of offer."""

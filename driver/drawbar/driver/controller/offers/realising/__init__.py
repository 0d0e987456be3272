"""How the parts of offers are brought about at a fabric manager, for each kind of offer."""

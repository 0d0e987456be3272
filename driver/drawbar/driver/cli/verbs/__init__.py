"""The operators' verbs, one module each: options and output."""

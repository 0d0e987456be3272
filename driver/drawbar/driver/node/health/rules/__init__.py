"""What can be wrong with a device: a module for each thing that is looked at; see `docs/development/extending.md`."""

"""The health rules, a module for each subject; see `docs/development/extending.md`."""

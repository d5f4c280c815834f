"""Pages and pictures that are made by commands: ``python -m tests.docs api|screenshots``."""

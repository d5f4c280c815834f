"""Pages made by commands, and checks of their sentences: ``python -m tests.docs``."""

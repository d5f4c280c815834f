"""Contributions, each a distribution that an extra installs (``autotune/contributions.py``)."""

"""Engines that ``tune bench`` compares with: one protocol, and those that are always known."""

"""Words that all packages share: errors, choices by name, and bounds of data that nobody vouches for."""

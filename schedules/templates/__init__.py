"""One file per pattern: its compute where we define it, its match, its space, its rewrite."""

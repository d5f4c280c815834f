"""``python -m research squeezenet:60s`` tunes and times whole models, and rewrites docs/benchmarks.md."""

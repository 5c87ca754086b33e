"""How the knowledge base behaves under many writers, and when it is large: `python -m benchmarks.ckb --help`."""

"""What the verifier withstands: `python benchmarks/verification/run_endurance.py --help`."""

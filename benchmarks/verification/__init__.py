"""Measurements of the verifier itself, on machines that a test run doesn't have."""

"""Measurements of the verifier itself: what it withstands, and what it costs on a device."""

"""What outer-loop policies are worth where the truth is known."""

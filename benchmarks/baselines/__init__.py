"""What engines are compared with. Each baseline is a stand-alone driver script with the operations of an engine."""

from pathlib import Path

HUGGINGFACE = Path(__file__).parent / "huggingface.py"
"""Driver of Hugging Face transformers, in its own process."""

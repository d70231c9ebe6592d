"""Replay-based continual learning with the general masked softmax."""

__version__ = "0.1.0"

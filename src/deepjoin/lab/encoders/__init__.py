"""Encoders of the methods the paper compares its own with."""

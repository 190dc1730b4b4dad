"""Tests, one file a part of the product."""

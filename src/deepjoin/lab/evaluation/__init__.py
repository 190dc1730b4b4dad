"""Evaluation: build, search, compare with brute force, one row a method and k."""

from deepjoin.lab.evaluation.run import evaluate

__all__ = ["evaluate"]

"""Evaluation: build, search, compare with brute force, one row for each method and k."""

from deepjoin.lab.evaluation.run import evaluate
from deepjoin.lab.evaluation.task import EvaluationSettings

__all__ = ["EvaluationSettings", "evaluate"]

"""The paper: its methods, training and evaluation."""

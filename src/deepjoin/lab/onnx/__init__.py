"""Export a trained model to the small ONNX folder that the product reads, and back."""

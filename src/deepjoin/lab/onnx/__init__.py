"""Export a trained model to the small ONNX folder the product reads, and back."""

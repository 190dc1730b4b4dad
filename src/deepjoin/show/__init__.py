"""Results as text and as notebook cards."""

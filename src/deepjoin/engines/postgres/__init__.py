"""Column vectors in PostgreSQL with pgvector: `publishing` copies them, `store` searches them."""

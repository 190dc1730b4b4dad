"""The index on disk: values, catalog, ledger, vectors, segments, manifest."""

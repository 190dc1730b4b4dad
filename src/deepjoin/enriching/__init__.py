"""Enrichment: the joins of a lake that help a model, found, tried and measured."""

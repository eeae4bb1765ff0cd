"""Trellises, codebooks, their policies, and losses: paths and edges, no features."""

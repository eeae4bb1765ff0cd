"""Trellises, codebooks and their policies, losses. Nothing here knows features."""

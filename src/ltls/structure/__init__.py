"""Trellises, codebooks, codebook policies and losses: everything about paths, nothing about features."""

"""Fitted models: labels, decoding, reranking, and top-k prediction."""

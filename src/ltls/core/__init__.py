"""Arrays, files, compression, memory and prefetching: what every other room may use."""

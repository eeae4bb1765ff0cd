"""Arrays, files, compression, memory and prefetching; used by all other packages."""

"""The commands of ``ltls``, one file each, and what they share.

What takes long to import is imported inside the commands, so that ``ltls --help`` answers at once.
"""

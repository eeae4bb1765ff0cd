"""A small table of texts with labels, as the examples of the documentation use it."""

TICKETS = "text,category\n" + 10 * "lost my card,card\nmy visa card is lost,card\nwhat fee,fee\n"

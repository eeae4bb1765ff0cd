"""Whether a call lets other Python threads run."""

import sys
import threading


def releases_the_gil(call):
    """Return whether another thread runs during one of a thousand calls."""
    beats, due, finished = [0], threading.Event(), threading.Event()

    def beat():
        while not finished.is_set():
            due.wait()
            due.clear()
            beats[0] += 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e6)  # others run only when the GIL is released on purpose
    heart = threading.Thread(target=beat)
    heart.start()
    try:
        for _ in range(1000):  # the system may wake the other thread only after the call
            due.set()  # from now on, the other thread waits for the GIL
            before = beats[0]
            call()
            if beats[0] > before:
                return True
        return False
    finally:
        sys.setswitchinterval(interval)
        finished.set()
        due.set()
        heart.join()

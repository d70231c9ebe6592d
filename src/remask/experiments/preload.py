"""Imported in the fork server only: what workers need, and protection from the terminal."""

import gc
import os
import signal

import remask.experiments.workers  # noqa: F401 - torch, and all else that a worker needs

# In a session of its own, Ctrl-C and the end of the terminal reach the parent only. A SIGTERM to
# all processes of a service must not end the server: it reports how workers ended.
os.setsid()
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
gc.freeze()  # collections would write to the pages that workers share

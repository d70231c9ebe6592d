"""`python -m remask.launch` is a worker process."""

import sys

from remask.launch.worker import main

sys.exit(main())

"""`python -m remask.runs` is a worker process."""

import sys

from remask.runs.worker import main

sys.exit(main())

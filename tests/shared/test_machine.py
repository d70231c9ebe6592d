import subprocess
import sys

import pytest

STEPS = """
import resource, sys
from remask.machine import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()

def pages_of_a_step():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(b"x") * (40 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(min(pages_of_a_step() for _ in range(4)))
"""


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc")
@pytest.mark.parametrize(("choice", "low", "high"), [("keep", 0, 10), ("usual", 1000, 20_000)])
def test_a_process_that_keeps_freed_memory_reuses_its_pages(
    choice: str, low: int, high: int
) -> None:
    command = [sys.executable, "-c", STEPS, choice]
    pages = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert low <= pages < high

"""What is asked of the machine."""

import subprocess
import sys

import pytest

STEPS = """
import resource, sys
import torch
from remask.machine import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()

def step():
    torch.ones(4 << 20)  # 16 MB

for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 10)
"""


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="the system must have glibc")
def test_a_process_that_keeps_freed_memory_is_not_given_the_same_pages_again_and_again() -> None:
    def pages_per_step(choice: str) -> int:
        command = [sys.executable, "-c", STEPS, choice]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert pages_per_step("keep") < 10
    assert pages_per_step("as usual") > 1000

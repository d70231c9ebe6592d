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
    torch.ones(16 << 20)  # 64 MB

def pages_of_ten_steps():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

# The fewest: the system may take pages away, and the first steps need new ones.
print(min(pages_of_ten_steps() for _ in range(10)) // 10)
"""


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="the system must have glibc")
def test_a_process_that_keeps_freed_memory_is_not_given_the_same_pages_again_and_again() -> None:
    def pages_per_step(choice: str) -> int:
        command = [sys.executable, "-c", STEPS, choice]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert pages_per_step("keep") < 10
    assert pages_per_step("as usual") > 1000

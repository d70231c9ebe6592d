"""What a worker takes of the memory: `make test-paper`."""

import subprocess
import sys
from pathlib import Path

import pytest

_LARGEST_KILOBYTES = 2 << 20
_REPORT = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
sys.stderr.write(done.stderr)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)  # of the largest process, in KiB
sys.exit(done.returncode)
"""


@pytest.mark.data
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere ru_maxrss has other units")
def test_a_resnet_on_cifar10_takes_less_than_2_gib_a_worker(tmp_path: Path) -> None:
    # The limit shortens the tasks; all of CIFAR-10 is loaded, and mapped, whatever it is.
    command = [sys.executable, "-m", "remask", "run", "--benchmark", "split-cifar10"]
    command += ["--method", "derpp", "--buffer", "500", "--epochs", "1", "--limit", "64"]
    command += ["--trials", "2", "--workers", "2", "--store", str(tmp_path / "results.db")]
    done = subprocess.run(
        [sys.executable, "-c", _REPORT, *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    largest = int(done.stdout.split()[-1])
    print(f"the largest process took {largest / 2**20:.2f} GiB")
    assert largest < _LARGEST_KILOBYTES

"""What a malicious pickle could do; the fixture `nothing_is_executed` sees that none has."""

from collections.abc import Callable


class Payload:
    """Makes a file in the current folder when unpickled."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return open, ("executed", "w")

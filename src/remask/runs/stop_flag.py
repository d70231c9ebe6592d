"""A flag on a Ray cluster that everybody can wait for; no import here is slow."""

import asyncio


class StopFlag:
    """The body of a Ray actor."""

    def __init__(self) -> None:
        self._raised = asyncio.Event()

    async def wait(self) -> None:
        """Return when the flag is raised."""
        await self._raised.wait()

    async def raise_it(self) -> None:
        """Let everybody who waits go on."""
        self._raised.set()

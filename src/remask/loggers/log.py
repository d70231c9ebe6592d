"""Several loggers as one."""

from collections.abc import Callable, Mapping
from typing import Self

from remask.errors import RemaskError
from remask.loggers.logger import Logger, Reached, Source
from remask.own_code import own_place


class Log:
    """Hands every event to several loggers, to each of them once.

    A logger that fails gets no more events, and `say` is called with the reason: training goes on.
    """

    def __init__(self, loggers: Mapping[str, Logger], say: Callable[[str], None]) -> None:
        """`loggers` have the names that messages call them by."""
        self._loggers = dict(loggers)
        self._say = say
        self._reached: dict[tuple[str, Source], Reached] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def step(self, source: Source, step: int, task: int, values: Mapping[str, float]) -> None:
        """See `Logger.on_step`."""
        self._once(source, "step", step, lambda to: to.on_step(source, step, task, values))

    def task(self, source: Source, step: int, task: int, values: Mapping[str, float]) -> None:
        """See `Logger.on_task`."""
        self._once(source, "task", step, lambda to: to.on_task(source, step, task, values))

    def end(self, source: Source, step: int, values: Mapping[str, float]) -> None:
        """See `Logger.on_end`."""
        self._once(source, "end", step, lambda to: to.on_end(source, step, values))

    def flush(self) -> None:
        """See `Logger.flush`."""
        self._each(lambda _, logger: logger.flush())

    def close(self) -> None:
        """See `Logger.close`."""
        self._each(lambda _, logger: logger.close())

    def _once(self, source: Source, event: str, step: int, call: Callable[[Logger], None]) -> None:
        """Make a call to every logger that does not have this event yet."""

        def hand_on(name: str, logger: Logger) -> None:
            if (name, source) not in self._reached:
                self._reached[name, source] = logger.reached(source)
            had = self._reached[name, source]
            if had.after(event, step) != had:
                call(logger)
                self._reached[name, source] = had.after(event, step)

        self._each(hand_on)

    def _each(self, call: Callable[[str, Logger], None]) -> None:
        for name, logger in list(self._loggers.items()):
            try:
                call(name, logger)
            except Exception as error:  # also of the user's own code: a run outlives its log
                del self._loggers[name]
                what = str(error) if isinstance(error, RemaskError) else repr(error)
                self._say(f"nothing more is logged to {name}: {what}{own_place(error)}")

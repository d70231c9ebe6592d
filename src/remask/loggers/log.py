"""Several loggers as one."""

from collections.abc import Callable, Mapping
from typing import Self

from remask.errors import RemaskError
from remask.loggers.logger import Logger, Reached, Source
from remask.own_code import own_place


class Log:
    """Hands what happens to several loggers, to each of them once.

    A logger that fails is left out from then on, and `say` is told: training goes on.
    """

    def __init__(self, loggers: Mapping[str, Logger], say: Callable[[str], None]) -> None:
        """`loggers` are by what to call them."""
        self._loggers = dict(loggers)
        self._say = say
        self._reached: dict[tuple[str, Source], Reached] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def step(self, source: Source, step: int, task: int, values: Mapping[str, float]) -> None:
        """See `Logger.on_step`."""

        def hand_on(name: str, logger: Logger) -> None:
            reached = self._of(name, logger, source)
            if step > reached.step:
                logger.on_step(source, step, task, values)
                self._reached[name, source] = reached._replace(step=step)

        self._each(hand_on)

    def task(self, source: Source, step: int, task: int, values: Mapping[str, float]) -> None:
        """See `Logger.on_task`."""

        def hand_on(name: str, logger: Logger) -> None:
            reached = self._of(name, logger, source)
            if step > reached.task_step:
                logger.on_task(source, step, task, values)
                self._reached[name, source] = reached._replace(task_step=step)

        self._each(hand_on)

    def end(self, source: Source, step: int, values: Mapping[str, float]) -> None:
        """See `Logger.on_end`."""

        def hand_on(name: str, logger: Logger) -> None:
            reached = self._of(name, logger, source)
            if not reached.ended:
                logger.on_end(source, step, values)
                self._reached[name, source] = reached._replace(ended=True)

        self._each(hand_on)

    def flush(self) -> None:
        """See `Logger.flush`."""
        self._each(lambda _, logger: logger.flush())

    def close(self) -> None:
        """See `Logger.close`."""
        self._each(lambda _, logger: logger.close())

    def _of(self, name: str, logger: Logger, source: Source) -> Reached:
        if (name, source) not in self._reached:
            self._reached[name, source] = logger.reached(source)
        return self._reached[name, source]

    def _each(self, call: Callable[[str, Logger], None]) -> None:
        for name, logger in list(self._loggers.items()):
            try:
                call(name, logger)
            except Exception as error:  # also of the user's own code: a run outlives its log
                del self._loggers[name]
                what = str(error) if isinstance(error, RemaskError) else repr(error)
                self._say(f"nothing more is logged to {name}: {what}{own_place(error)}")

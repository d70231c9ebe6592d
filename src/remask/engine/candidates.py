"""The candidates of a trial whose mask is "auto": which there are, and what choosing costs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from remask.config import TrialConfig
from remask.methods import Method
from remask.names import short_number

SHARE_APART = 0.05
"""The share of every task's samples that candidates are compared on and nobody learns from."""
_LEAST_BUFFER = 1000
"""Below it, held-out samples cost more accuracy than a choice among candidates wins."""
_HELD_OUT = 20
"""One place in so many of the memory holds a sample of an earlier task to compare candidates on."""


@dataclass(frozen=True)
class Candidate:
    """One way to mask, among several that are trained side by side."""

    mask: float | None
    fade: float = 0.0
    fade_power: float = 1.0

    @property
    def name(self) -> str:
        """As people read it: `none`, `0 fading 4`, `0 fading 16^1.5`."""
        shown = "none" if self.mask is None else short_number(self.mask)
        return f"{shown} fading {fading_name(self)}" if self.fade else shown

    def config(self, asked: TrialConfig, buffer: int) -> TrialConfig:
        """The trial that was asked for, with this mask."""
        return asked.model_copy(update={**asdict(self), "buffer": buffer})


_CANDIDATES = (
    Candidate(0.0, fade=16.0, fade_power=1.5),
    Candidate(None),
    Candidate(0.0, fade=4.0),
    Candidate(-1.0),
)
"""The first, the default, was near the best on short and long streams at all buffers. The others
mask nothing, for longer, and for ever; the last is the paper's choice for DER++."""


def fading_name(fading: Candidate | TrialConfig) -> str:
    """How a mask fades: `4`, or `16^1.5` for min(1, 16 M / n)^1.5."""
    power = "" if fading.fade_power == 1 else f"^{fading.fade_power:g}"
    return f"{fading.fade:g}{power}"


def held_out_places(buffer: int) -> int:
    """How many of a memory's places hold samples that candidates are compared on."""
    return 0 if buffer < _LEAST_BUFFER else buffer // _HELD_OUT


def candidates_of(method: type[Method], buffer: int) -> tuple[Candidate, ...]:
    """What a trial with the mask "auto" chooses from; the first is the default."""
    return _CANDIDATES if held_out_places(buffer) else _CANDIDATES[:1]


def concrete_configs(configs: Sequence[TrialConfig], method: type[Method]) -> list[TrialConfig]:
    """What is really trained: the candidates of each trial side by side, or the trials as given."""
    return [
        concrete
        for config in configs
        for concrete in (
            [
                candidate.config(config, config.buffer - held_out_places(config.buffer))
                for candidate in candidates_of(method, config.buffer)
            ]
            if config.mask == "auto"
            else [config]
        )
    ]

"""Masked replay as a callback of the Hugging Face Trainer."""

from typing import Any

from torch import nn
from transformers import TrainerCallback

from remask.integrations import ReplayHooks


class MaskedReplay(ReplayHooks, TrainerCallback):
    """Masks the loss and replays: `Trainer(..., callbacks=[MaskedReplay(memory, active=[2, 3])])`.

    For models that compute their loss from `labels`, also with LoRA. All texts need the same length
    (`padding="max_length"`), because the memory stores samples of one shape.
    """

    def on_train_begin(self, *_: Any, model: nn.Module, **__: Any) -> None:
        """Mask the model's logits, and add replayed samples to its inputs."""
        self.attach(model)
        self._handles.append(model.register_forward_pre_hook(self._extend, with_kwargs=True))

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Leave the model as it was."""
        self.detach()

    def _extend(self, module: nn.Module, args: Any, named: dict[str, Any]) -> Any:
        return (args, self.extend_named(named)) if module.training else None

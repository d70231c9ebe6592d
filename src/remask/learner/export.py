"""Export of a learner's model: ONNX, torch.export, or the weights alone.

ONNX and torch.export files take raw inputs, such as the pixels of an image, and return
probabilities: normalisation and the encoder are part of their graph. Class names and the reading of
images are described in the file, and in a JSON beside it.
"""

import contextlib
import copy
import hashlib
import importlib
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import safetensors.torch
import torch
from torch import Tensor, nn

from remask.data.tasks import Normalise
from remask.errors import MissingPackageError
from remask.learner.predictions import Abstention
from remask.learner.results import Preprocessing
from remask.learner.settings import LearnerError
from remask.outputs import check_output, write_output

ExportFormat = Literal["onnx", "torch-export", "safetensors"]
SUFFIXES: dict[str, str] = {"onnx": ".onnx", "torch-export": ".pt2", "safetensors": ".safetensors"}
_Run = Callable[[Tensor], Tensor]

_NOTE = "remask.json"
"""The name of the description inside a file."""
_INPUTS, _PROBABILITIES = "inputs", "probabilities"
_UNCHANGED = {"scale": 1, "mean": None, "std": None}
_CHECKED_BATCHES = (1, 2, 7)
_LARGEST_DIFFERENCE = 1e-4
"""Of probabilities: other kernels add in another order."""


@dataclass(frozen=True)
class Exported:
    """The files that an export has written."""

    path: Path
    description: Path
    """The JSON beside it."""
    to: ExportFormat
    classes: tuple[str, ...]
    difference: float
    """The largest between a probability of the file and of the learner, on random inputs."""

    def __str__(self) -> str:
        same = (
            "exactly the same" if not self.difference else f"the same within {self.difference:.0e}"
        )
        return (
            f"{self.path}: {len(self.classes)} classes; read back, its probabilities are {same}. "
            f"{self.description.name} describes how to use it."
        )


def export_model(
    net: nn.Module,
    path: Path,
    to: ExportFormat,
    classes: Sequence[str],
    preprocessing: Preprocessing,
    abstentions: Sequence[Abstention] = (),
) -> Exported:
    """Write a net that maps preprocessed inputs to scores over `classes`, and PATH.json beside it.

    What is written is read back and must predict the same before it takes its place. `abstentions`
    are stored in the JSON. Raises LearnerError and MissingPackageError.
    """
    if to not in SUFFIXES:
        raise LearnerError(
            f"cannot export to {to!r}: give one of {', '.join(get_args(ExportFormat))}"
        )
    beside = path.with_name(f"{path.name}.json")
    for target in (path, beside):
        check_output(target)
    module = _Exportable(copy.deepcopy(net), preprocessing).eval().requires_grad_(False)
    description = _describe(to, classes, preprocessing, abstentions)
    example = _random_inputs(module, preprocessing, 2)
    try:
        with _quiet(), torch.no_grad():
            data, run = _WAYS[to](module, example, json.dumps(description))
            checked = [_random_inputs(module, preprocessing, size) for size in _CHECKED_BATCHES]
            differences = [(run(inputs) - module(inputs)).abs().max() for inputs in checked]
            difference = float(torch.stack(differences).max())
    except (MissingPackageError, MemoryError):
        raise
    except Exception as error:  # tracing a custom net raises anything
        reason = (str(error).strip().splitlines() or [""])[0].rstrip(".")
        raise LearnerError(
            f"the net cannot be exported to {to}: {type(error).__name__}: {reason:.300}. A forward "
            f"that branches on the values or the number of its inputs cannot be traced; the "
            f"weights alone can be exported to safetensors."
        ) from error
    if not difference <= _LARGEST_DIFFERENCE:  # or NaN
        raise LearnerError(
            f"nothing was exported: read back from {to}, the net predicts something else "
            f"(probabilities differ by up to {difference:.2g}). Does it draw random numbers?"
        )
    write_output(path, data)
    description["file"] = {"name": path.name, "sha256": hashlib.sha256(data).hexdigest()}
    write_output(beside, json.dumps(description, indent=1, ensure_ascii=False).encode() + b"\n")
    return Exported(path, beside, to, tuple(classes), difference)


class _Exportable(nn.Module):
    """From raw inputs to probabilities."""

    def __init__(self, net: nn.Module, how: Preprocessing) -> None:
        super().__init__()
        self.net = net
        self.normalise: nn.Module = nn.Identity()  # for an encoder, which takes raw inputs
        if how.scale != 1 or how.mean is not None:
            self.normalise = Normalise(how, how.input_shape)

    def forward(self, inputs: Tensor) -> Tensor:
        """[B, *input_shape] -> [B, K]."""
        scores: Tensor = self.net(self.normalise(inputs))
        return scores.softmax(-1)


def _describe(
    to: str, classes: Sequence[str], how: Preprocessing, abstentions: Sequence[Abstention]
) -> dict[str, Any]:
    shape, inside = how.input_shape, to != "safetensors"
    steps = {"scale": how.scale, "mean": how.mean, "std": how.std}
    raw = inside or steps == _UNCHANGED or how.input_type == torch.int64
    taken = str(how.input_type if raw else torch.float32).removeprefix("torch.")
    image = None
    if len(shape) == 3:
        image = {
            "mode": {1: "L", 3: "RGB"}.get(shape[0]),
            "height": shape[1],
            "width": shape[2],
            "orientation": "upright, by EXIF",
            "background": "white",
            "crop": "centre, to the aspect ratio of height and width",
            "resize": how.resize,
            "pillow": "ImageOps.fit(ImageOps.exif_transpose(image), (width, height), "
            "Image.Resampling.BILINEAR)",
            "layout": "channels, height, width",
        }
    return {
        "format": 1,
        "to": to,
        "classes": list(classes),
        "input": {"name": _INPUTS, "type": taken, "shape": ["batch", *shape]},
        "output": {
            "name": _PROBABILITIES if inside else "scores",
            "meaning": "a probability per class" if inside else "softmax gives probabilities",
            "shape": ["batch", len(classes)],
        },
        "preprocessing": {"inside": inside, "formula": "(raw * scale - mean) / std", **steps},
        "image": image,
        "abstain": [
            {"accuracy": each.wanted, "confidence": each.confidence, "coverage": each.coverage}
            for each in abstentions
        ],
    }


def _trace(module: nn.Module, example: Tensor) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(
        module, (example,), dynamic_shapes={_INPUTS: {0: batch}}, strict=False
    )
    for node in program.graph.nodes:  # stack traces contain folders of this machine
        node.meta.pop("stack_trace", None)
    return program


def _torch_export(module: "_Exportable", example: Tensor, note: str) -> tuple[bytes, _Run]:
    stream = io.BytesIO()
    torch.export.save(_trace(module, example), stream, extra_files={_NOTE: note})
    return stream.getvalue(), torch.export.load(io.BytesIO(stream.getvalue())).module()


def _onnx(module: "_Exportable", example: Tensor, note: str) -> tuple[bytes, _Run]:
    _, _, runtime = map(_import_for_onnx, ("onnx", "onnxscript", "onnxruntime"))
    program = torch.onnx.export(
        _trace(module, example),
        dynamo=True,
        input_names=[_INPUTS],
        output_names=[_PROBABILITIES],
        verbose=False,
    )
    assert program is not None
    proto: Any = program.model_proto
    del proto.graph.value_info[:]
    for value in (proto.graph.input[0], proto.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    for node in proto.graph.node:
        del node.metadata_props[:]
    classes = json.dumps(json.loads(note)["classes"])
    for key, value in ((_NOTE, note), ("classes", classes)):
        proto.metadata_props.add(key=key, value=value)
    data = bytes(proto.SerializeToString())
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return data, lambda raw: torch.from_numpy(session.run(None, {_INPUTS: raw.numpy()})[0])


def _safetensors(module: "_Exportable", _: Tensor, note: str) -> tuple[bytes, _Run]:
    tensors = {
        name: tensor.detach().clone(memory_format=torch.contiguous_format)
        for name, tensor in module.net.state_dict().items()
    }
    data, loaded = safetensors.torch.save(tensors, metadata={_NOTE: note}), copy.deepcopy(module)
    for tensor in (*loaded.net.parameters(), *loaded.net.buffers()):
        tensor.zero_()  # so that every weight is read from the file
    loaded.net.load_state_dict(safetensors.torch.load(data))
    return data, loaded


_WAYS = {"onnx": _onnx, "torch-export": _torch_export, "safetensors": _safetensors}
"""Each returns the bytes of a file, and a function that predicts with what was read back."""


def _import_for_onnx(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingPackageError(
            f"exporting to ONNX needs {name}, which is not installed: "
            f"pip install onnx onnxruntime onnxscript"
        ) from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings of the exporters about their own internals."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(level)


def _random_inputs(net: nn.Module, how: Preprocessing, count: int) -> Tensor:
    """Return inputs with the distribution that the preprocessing was made for."""
    random, shape = torch.Generator().manual_seed(count), (count, *how.input_shape)
    if how.input_type == torch.uint8:
        return torch.randint(0, 256, shape, dtype=torch.uint8, generator=random)
    if how.input_type == torch.int64:
        tables = [each.num_embeddings for each in net.modules() if isinstance(each, nn.Embedding)]
        return torch.randint(0, min(tables, default=2), shape, generator=random)
    per_channel = (-1, *[1] * (len(how.input_shape) - 1))
    mean, std = (
        torch.tensor(own).view(per_channel) for own in (how.mean or [0.0], how.std or [1.0])
    )
    return (torch.randn(shape, generator=random) * std + mean) / how.scale

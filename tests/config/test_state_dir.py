"""The state directory of a file, read without the rest of it."""

import os
from pathlib import Path

import pytest

from tierd.config import find_state_dir, load_config
from tierd.errors import ConfigError

SOUND = "log_dirs: [{path: /var/lib/kafka}]\nremote: {backend: filesystem, filesystem: {path: /srv/store}}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tierd.yaml"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "state_dir: /srv/tierd\n",
        "state_dir: ./state\n",
        "state_dir: ../a/../state\n",
        "state_dir: ${STATE}/tierd\n",
    ],
    ids=["left out", "absolute", "beside the file", "above the file", "environment"],
)
def test_state_dir_of_a_sound_file_is_that_of_the_whole_configuration(file: Path, text: str) -> None:
    file.write_text(text + SOUND)
    env = {"STATE": "/from/env"}

    assert find_state_dir(file, env) == load_config(file, env, secrets=False).state_dir


@pytest.mark.parametrize("rest", ["copyy: 1\n", "copy: {concurrency: '${UNSET}'}\n", "remote: {backend: nowhere}\n"])
def test_faults_of_other_keys_do_not_matter(file: Path, rest: str) -> None:
    file.write_text("state_dir: /srv/tierd\n" + rest)

    assert find_state_dir(file, {}) == Path("/srv/tierd")


@pytest.mark.parametrize(
    "text", ["state_dir: relative", "state_dir: [/a]", "state_dir: 7", "state_dir: ${UNSET}", "[\n", ""]
)
def test_state_dir_that_cannot_be_used_is_left_to_a_check_of_the_whole_file(file: Path, text: str) -> None:
    file.write_text(text)

    assert find_state_dir(file, {}) is None


def test_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        find_state_dir(tmp_path / "absent.yaml", os.environ)

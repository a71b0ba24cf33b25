import re
import tomllib
from pathlib import Path

import pytest

from tierd.pipeline.running.requirements import LOWEST_JAVA

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def stages() -> list[str]:
    """Return the instructions of each stage, without comments."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    return re.split(r"^(?=FROM )", text, flags=re.MULTILINE)[1:]


@pytest.fixture(scope="module")
def extras() -> dict[str, set[str]]:
    """Return the requirements of each extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {name: set(wanted) for name, wanted in project["optional-dependencies"].items()}


def test_build_tools_are_not_in_the_final_image(stages: list[str]) -> None:
    build, final = stages

    assert "pip install --require-hashes" in build
    assert "pip install --no-index --no-deps --no-build-isolation ." in build
    assert build.count("pip install") == 2
    assert "pip" not in final
    assert "COPY --from=build /opt/tierd /opt/tierd" in final


def test_both_stages_have_the_same_slim_python(stages: list[str]) -> None:
    assert {stage.split()[1] for stage in stages} == {"${PYTHON_IMAGE}"}
    assert re.search(
        r"^ARG PYTHON_IMAGE=python:3\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?$",
        (ROOT / "Dockerfile").read_text(),
        re.MULTILINE,
    )


def test_image_has_every_store_and_on_request_spark_with_java(stages: list[str], extras: dict[str, set[str]]) -> None:
    build, final = stages
    named = re.search(r'extras="([a-z ]+)"; \[ "\$SPARK" = no \] \|\| extras="\$extras spark"', build)

    assert named
    assert extras["all"] == {f"tierd[{named[1].replace(' ', ',')},spark]"}
    assert re.search(r'^RUN \[ "\$SPARK" = no \] \|\| \{ apt-get update', final, re.MULTILINE)
    assert f"openjdk-{LOWEST_JAVA}-jre-headless" in final
    assert all(re.search(r"^ARG SPARK$", stage, re.MULTILINE) for stage in stages)
    assert re.search(r"^ARG SPARK=no$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)


def test_java_has_a_user_and_a_home_for_any_user_of_the_container(stages: list[str]) -> None:
    for word in ("JAVA_TOOL_OPTIONS=-Duser.home=/", "HADOOP_USER_NAME=", "SPARK_USER="):
        assert word in stages[-1]


def test_image_runs_without_privileges_and_stops_on_sigterm(stages: list[str]) -> None:
    assert re.search(r"^USER 1000:1000$", stages[-1], re.MULTILINE)
    assert re.search(r"^STOPSIGNAL SIGTERM$", stages[-1], re.MULTILINE)
    assert re.search(r'^ENTRYPOINT \["tierd"\]$', stages[-1], re.MULTILINE)


def test_health_check_requests_livez_with_a_deadline(stages: list[str]) -> None:
    assert "/livez" in stages[-1]
    assert re.search(r"^HEALTHCHECK .*--timeout=5s", stages[-1], re.MULTILINE)
    assert "timeout=4" in stages[-1]


def test_dockerignore_allows_exactly_the_copied_files(stages: list[str]) -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", stages[0], re.MULTILINE)

    assert {name for names in copied for name in names.split()} == allowed
    assert all((ROOT / name).exists() for name in allowed)


def test_the_licence_is_apache_2_in_full() -> None:
    text = (ROOT / "LICENSE").read_text()

    assert len(text.splitlines()) == 202
    assert "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION" in text
    assert "Copyright [yyyy] [name of copyright owner]" in text

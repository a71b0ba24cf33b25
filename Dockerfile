# tierd beside a broker in a container: share the broker's log dirs and run as its user.
#
#   docker build -t tierd .
#   docker run --user "$(stat -c %u:%g /var/lib/kafka/data)" \
#     -v /etc/tierd:/etc/tierd:ro -v /var/lib/tierd:/var/lib/tierd -v /var/lib/kafka/data:/var/lib/kafka/data:ro tierd
#
# Holds: a volume is a mount of its own, so hard links into another one fail and tierd falls back to open files. For
# links mount the common parent once, writable (-v /var/lib/kafka:/var/lib/kafka), and set hold.dir below it.
# To be scraped from outside set http.listen to 0.0.0.0:9405.
#
# With Java and Spark, for compaction (docs/pipeline.md): docker build --build-arg SPARK=yes -t tierd-spark .

ARG SPARK=no
# A tag follows the fixes of the image, a digest does not move: see docs/install.md.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG SPARK
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/tierd
COPY pyproject.toml README.md LICENSE ./
COPY requirements ./requirements
# Every package is held to its hashes; what builds tierd is one of them, so that nothing is fetched without a hash.
RUN extras="azure gcs postgres redis"; [ "$SPARK" = no ] || extras="$extras spark"; \
    set -- --requirement requirements/build.txt --requirement requirements/base.txt; \
    for extra in $extras; do set -- "$@" --requirement "requirements/$extra.txt"; done; \
    /opt/tierd/bin/pip install --require-hashes "$@"
COPY daemon ./daemon
RUN /opt/tierd/bin/pip install --no-index --no-deps --no-build-isolation . \
    && /opt/tierd/bin/python -m compileall -q /opt/tierd/lib \
    && /opt/tierd/bin/pip uninstall --yes pip setuptools

FROM ${PYTHON_IMAGE}
ARG SPARK
RUN [ "$SPARK" = no ] || { apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*; }
ENV PATH=/opt/tierd/bin:$PATH PYTHONUNBUFFERED=1 TIERD_LIVEZ=http://127.0.0.1:9405/livez
# Java and Hadoop ask who runs them; the user that --user names is in no /etc/passwd.
ENV JAVA_TOOL_OPTIONS=-Duser.home=/var/lib/tierd HADOOP_USER_NAME=tierd SPARK_USER=tierd
# 1000 is the user of the apache/kafka image; --user names another one.
RUN install -d -o 1000 -g 1000 -m 0700 /var/lib/tierd
COPY --from=build /opt/tierd /opt/tierd
USER 1000:1000
VOLUME /var/lib/tierd
EXPOSE 9405
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(os.environ['TIERD_LIVEZ'], timeout=4)"]
ENTRYPOINT ["tierd"]
CMD ["run"]

# tierd beside a broker, in a container. Mount the broker's log dirs, and run as the broker's user.
#
#   docker build -t tierd .
#   docker run --user "$(stat -c %u:%g /var/lib/kafka/data)" \
#     -v /etc/tierd:/etc/tierd:ro -v /var/lib/tierd:/var/lib/tierd -v /var/lib/kafka/data:/var/lib/kafka/data:ro tierd
#
# Holds: a volume is a mount of its own. Hard links from one volume into another fail, and tierd keeps files open instead.
# To hold by links, mount the common parent once, writable (-v /var/lib/kafka:/var/lib/kafka), and set hold.dir below it.
# To let another host read the metrics, set http.listen to 0.0.0.0:9405.
# Push replication needs its port (-p 9406:9406), and a volume for copies (-v /var/lib/tierd-copies:/var/lib/tierd-copies).
#
# With Java and Spark, for compaction (docs/pipeline.md): docker build --build-arg SPARK=yes -t tierd-spark .

ARG SPARK=no
# A tag follows the fixes of the image; a digest always names the same image (docs/install.md).
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG SPARK
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/tierd
COPY pyproject.toml setup.py README.md LICENSE ./
COPY requirements ./requirements
# pip compares every package with its hashes, including the packages that build tierd.
RUN extras="arrow azure gcs mqtt postgres redis rocksdb"; [ "$SPARK" = no ] || extras="$extras spark"; \
    set -- --requirement requirements/build.txt --requirement requirements/base.txt; \
    for extra in $extras; do set -- "$@" --requirement "requirements/$extra.txt"; done; \
    /opt/tierd/bin/pip install --require-hashes "$@"
COPY daemon ./daemon
COPY docs/operations.md ./docs/operations.md
# The context has no .git: docker build --build-arg TIERD_COMMIT="$(git rev-parse HEAD)" names the commit for tierd --version.
ARG TIERD_COMMIT
RUN /opt/tierd/bin/pip install --no-index --no-deps --no-build-isolation . \
    && /opt/tierd/bin/python -m compileall -q /opt/tierd/lib \
    && /opt/tierd/bin/pip uninstall --yes pip setuptools

FROM ${PYTHON_IMAGE}
ARG SPARK
RUN [ "$SPARK" = no ] || { apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*; }
ENV PATH=/opt/tierd/bin:$PATH PYTHONUNBUFFERED=1 TIERD_LIVEZ=http://127.0.0.1:9405/livez
# Java and Hadoop look up their user, but the user of --user is not in /etc/passwd of the image.
ENV JAVA_TOOL_OPTIONS=-Duser.home=/var/lib/tierd HADOOP_USER_NAME=tierd SPARK_USER=tierd
# 1000 is the user of the apache/kafka image; --user chooses another user.
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

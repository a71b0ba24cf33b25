#!/usr/bin/env bash
# A real Kafka cluster for tests, in KRaft mode on loopback: fetch, start, stop, kill, and Kafka's own tools. See README.md.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=${KAFKA_VERSION:-3.9.2}
libs=${KAFKA_LIBS_DIR:-.cache/kafka}/$version   # jars, shared by every test run
lab=${KAFKA_LAB_DIR:-.cache/kafka-lab}          # one cluster: node<N>/{server.properties,server.log,pid,data}
nodes=${KAFKA_NODES:-1}                         # 1, 2 or 3 combined broker+controllers
port=${KAFKA_PORT:-19092}                       # node N listens on port+10*(N-1), its controller one above
cluster_id=${KAFKA_CLUSTER_ID:-dGllcmQtdGVzdGtpdC0wMQ}
flags="-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -Djava.awt.headless=true -Dorg.slf4j.simpleLogger.showThreadName=false"

java_() { # replaces the calling shell, so that $! is the pid of Java itself
   local archived=() archive jars=("$libs"/*.jar); archive=$(classes)
   [ ! -e "$archive" ] || archived=("-XX:SharedArchiveFile=$archive" -Xlog:disable)   # without it Java starts, only slower
   exec java -Xmx"${KAFKA_HEAP:-512m}" $flags "${archived[@]}" ${KAFKA_JVM_FLAGS:-} \
  -Dorg.slf4j.simpleLogger.defaultLogLevel="${KAFKA_LOG_LEVEL:-info}" \
  -Dorg.slf4j.simpleLogger.showDateTime=true "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS" \
  -cp "$(IFS=:; echo "${jars[*]}")" "$@"; }

classes() { # print the name of the archive of the classes of a broker: Java uses one only with the jars and the Java that wrote it
  stat -Lc '%n %s %Y' "$libs"/*.jar "$(command -v java)" | cksum | sed "s|\([0-9]*\).*|$libs/classes-\1.jsa|"
}

libs() { # [mvn arguments, e.g. -Pstreams]: download once; two test runs at a time wait for each other
  [ -e "$libs/.complete$*" ] && return
  mkdir -p "$libs"; exec 9> "$libs/.lock"; flock 9
  [ -e "$libs/.complete$*" ] && return
  mvn -B -q -f "$here/pom.xml" -Dkafka.version="$version" "$@" \
    org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$(realpath "$libs")"
  touch "$libs/.complete" "$libs/.complete$*"   # a profile adds jars and leaves none out
}

properties() { # N: later lines win, so KAFKA_PROPS (newline-separated key=value) overrides everything above it
  local client=$((port + 10 * ($1 - 1))) voters="" n
  for n in $(seq "$nodes"); do voters+="${voters:+,}$n@127.0.0.1:$((port + 10 * (n - 1) + 1))"; done
  local data=${KAFKA_DATA_DIRS:-$lab/node$1/data}
  sed -e "s|@NODE@|$1|g; s|@CLIENT_PORT@|$client|g; s|@CONTROLLER_PORT@|$((client + 1))|g; s|@VOTERS@|$voters|g" \
    -e "s|@DATA@|$data|g" "$here/server.properties.in"
  printf '%s\n' "${KAFKA_PROPS:-}"
}

format() { # [N...]: write properties and format the storage of the nodes (default all); harmless when already formatted
  local n; [ $# -gt 0 ] || set -- $(seq "$nodes")
  for n; do
    mkdir -p "$lab/node$n"; properties "$n" > "$lab/node$n/server.properties"
    formatted "$n" && continue
    (KAFKA_LOG_LEVEL=warn java_ kafka.tools.StorageTool format --ignore-formatted -t "$cluster_id" -c "$lab/node$n/server.properties" > "$lab/node$n/format.log" 2>&1)
  done
}

formatted() { # N: true if all log.dirs have been formatted; the tool would say the same, a second later
  local dir dirs; IFS=, read -ra dirs <<< "${KAFKA_DATA_DIRS:-$lab/node$1/data}"
  for dir in "${dirs[@]}"; do [ -e "$dir/meta.properties" ] || return 1; done
}

start() { # [N...]: launch the nodes (default all), then wait until each says it has started
  local n i; [ $# -gt 0 ] || set -- $(seq "$nodes")
  for n; do
    properties "$n" > "$lab/node$n/server.properties"; : > "$lab/node$n/server.log"
    java_ kafka.Kafka "$lab/node$n/server.properties" < /dev/null > "$lab/node$n/server.log" 2>&1 & echo $! > "$lab/node$n/pid"
    disown
  done
  for n; do
    for i in $(seq $((10 * ${KAFKA_START_TIMEOUT:-60}))); do
      grep -q 'Kafka Server started' "$lab/node$n/server.log" && continue 2
      alive "$(cat "$lab/node$n/pid")" || break
      sleep 0.1
    done
    echo "node $n did not start:" >&2; tail -20 "$lab/node$n/server.log" >&2; return 1
  done
}

run() { # N: node N in the foreground, in place of this shell, so that whoever started us owns the broker
  properties "$1" > "$lab/node$1/server.properties"
  java_ kafka.Kafka "$lab/node$1/server.properties"
}

alive() { ps -o stat= -p "$1" 2> /dev/null | grep -qv '^Z[^l]*$'; } # a zombie nobody reaps yet is not alive

end() { # SIGNAL [N...]: signal the nodes (default all) and wait for their end; nodes without a pid file are down already
  local signal=$1 n; shift; [ $# -gt 0 ] || set -- $(seq "$nodes")
  for n; do [ ! -e "$lab/node$n/pid" ] || kill -"$signal" "$(cat "$lab/node$n/pid")" 2> /dev/null || true; done
  for n; do while [ -e "$lab/node$n/pid" ] && alive "$(cat "$lab/node$n/pid")"; do sleep 0.1; done; rm -f "$lab/node$n/pid"; done
}

tool() { # NAME ARGS...: a class of kafka-tools, e.g. TopicCommand, ConsoleConsumer, or a full class name
  local class=$1; shift
  case $class in *.*) ;; DumpLogSegments) case $version in 3.*) class=kafka.tools.$class;; *) class=org.apache.kafka.tools.$class;; esac ;;
    ConsoleProducer | StorageTool) case $version-$class in 3.* | *-StorageTool) class=kafka.tools.$class;; *) class=org.apache.kafka.tools.$class;; esac ;;
    ConsoleConsumer) class=org.apache.kafka.tools.consumer.$class;; *) class=org.apache.kafka.tools.$class;; esac
  KAFKA_LOG_LEVEL=${KAFKA_LOG_LEVEL:-warn} java_ "$class" "$@"
}

case ${1:-} in
  libs | classes | format | start | run | tool) "$@" ;;
  stop) end TERM "${@:2}" ;;
  kill) end KILL "${@:2}" ;;
  *) echo "usage: kafka.sh libs [-Pstreams] | format | start [N...] | run N | stop [N...] | kill [N...] | tool NAME ARGS..." >&2; exit 2 ;;
esac

"""Section kafka: listeners, peers, users, and the faults that the file alone tells."""

from pathlib import Path

import pytest

from tests.config.test_loading import MINIMAL, faults
from tierd.config import KafkaEndpointSettings, ScramVerifier, TierdConfig, config_warnings, load_config
from tierd.config.values import broker_address

TLS = "tls: {certificate_file: /c.pem, key_file: /k.pem}"
CLIENTS = "client_ca_file: /a.pem, client_certificates: required"
USERS = "sasl: {users: [{name: etl, password: secret-1}]}"
HASH_256 = ScramVerifier.of_password("secret-1", "sha256", salt=b"salt", iterations=4096).to_text()


def load(tmp_path: Path, section: str, *, rest: str = "") -> TierdConfig:
    path = tmp_path / "tierd.yaml"
    path.write_text(f"{MINIMAL}{rest}kafka: {{{section}}}\n")
    return load_config(path, {})


def found(tmp_path: Path, section: str, *, rest: str = "") -> list[str]:
    """Return the faults of a section, each without its place."""
    return [fault.split(": ", 1)[1] for fault in faults(tmp_path, f"{MINIMAL}{rest}kafka: {{{section}}}\n")]


class TestListeners:
    def test_endpoint_is_off_without_listeners(self, tmp_path: Path) -> None:
        assert not load(tmp_path, "").kafka.is_enabled
        assert not KafkaEndpointSettings().is_enabled

    @pytest.mark.parametrize(
        ("short", "protocol", "name"),
        [
            ("PLAINTEXT://127.0.0.1:9192", "plaintext", "PLAINTEXT"),
            ("SSL://tierd-1.example.com:9193", "ssl", "SSL"),
            ("SASL_SSL://[::1]:9194", "sasl_ssl", "SASL_SSL"),
        ],
    )
    def test_short_form_of_kafka_is_a_listener(self, tmp_path: Path, short: str, protocol: str, name: str) -> None:
        kafka = load(tmp_path, f'listeners: ["{short}"], {TLS}, {USERS}').kafka

        (listener,) = kafka.listeners
        assert kafka.is_enabled
        assert (listener.protocol, listener.name) == (protocol, name)
        assert listener.listen == short.partition("://")[2]

    def test_listener_with_every_key_advertises_its_own_address(self, tmp_path: Path) -> None:
        section = "{name: RESTORED, protocol: sasl_ssl, listen: 0.0.0.0:9192, advertised: tierd-1.example.com:19192}"
        (listener,) = load(tmp_path, f"listeners: [{section}], {TLS}, {USERS}").kafka.listeners

        assert (listener.name, listener.host, listener.port) == ("RESTORED", "0.0.0.0", 9192)
        assert (listener.is_tls, listener.has_login) == (True, True)
        assert listener.advertised_address(9192) == ("tierd-1.example.com", 19192)

    def test_clients_are_told_the_port_that_is_in_use(self, tmp_path: Path) -> None:
        (listener,) = load(tmp_path, "listeners: [{listen: localhost:0}]").kafka.listeners

        assert listener.advertised_address(40123) == ("localhost", 40123)

    @pytest.mark.parametrize("text", ["HTTP://127.0.0.1:80", "127.0.0.1:9192", "PLAINTEXT://127.0.0.1", "PLAINTEXT://"])
    def test_text_that_is_no_listener_is_a_fault(self, tmp_path: Path, text: str) -> None:
        (fault,) = found(tmp_path, f'listeners: ["{text}"]')

        assert fault.startswith("kafka.listeners[0]")

    @pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
    def test_address_of_all_interfaces_needs_an_advertised_one(self, tmp_path: Path, host: str) -> None:
        (fault,) = found(tmp_path, f'listeners: [{{listen: "{host}:9192"}}], allow_plaintext: true')

        assert fault == (
            f"kafka.listeners[0].listen: {host}:9192 is no address for clients: set advertised as well, such as "
            "tierd-1.example.com:9192"
        )

    @pytest.mark.parametrize(
        "host", ["192.0.2.1", "tierd-1.example.com", "2001:db8::1", "128.0.0.1", "localhost.example.com"]
    )
    @pytest.mark.parametrize("protocol", ["plaintext", "sasl_plaintext"])
    def test_plain_listener_on_another_interface_needs_a_word(self, tmp_path: Path, host: str, protocol: str) -> None:
        address = f"[{host}]:9192" if ":" in host else f"{host}:9192"
        section = f'listeners: [{{protocol: {protocol}, listen: "{address}"}}], {USERS}'

        (fault,) = found(tmp_path, section)

        assert fault.startswith(f"kafka.listeners[0].listen: {protocol} without ssl on another interface than loopback")
        assert load(tmp_path, f"{section}, allow_plaintext: true").kafka.is_enabled

    @pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "localhost", "[::1]"])
    def test_plain_listener_on_this_host_needs_no_word(self, tmp_path: Path, host: str) -> None:
        assert load(tmp_path, f'listeners: ["PLAINTEXT://{host}:9192"]').kafka.is_enabled

    def test_names_and_addresses_of_listeners_are_unique(self, tmp_path: Path) -> None:
        twice = found(tmp_path, 'listeners: ["PLAINTEXT://localhost:9192", "PLAINTEXT://localhost:9193"]')
        same = found(tmp_path, "listeners: [{name: A, listen: localhost:9192}, {name: B, listen: localhost:9192}]")

        assert twice == ["kafka.listeners[1].name: PLAINTEXT is the name of two listeners: set name"]
        assert same == ["kafka.listeners[1].listen: localhost:9192 is the address of two listeners: remove one"]

    def test_ports_that_the_system_chooses_are_not_the_same(self, tmp_path: Path) -> None:
        load(tmp_path, "listeners: [{name: A, listen: localhost:0}, {name: B, listen: localhost:0}]")

    def test_tls_and_logins_need_their_sections(self, tmp_path: Path) -> None:
        faulty = found(tmp_path, 'listeners: ["SSL://localhost:9192", "SASL_PLAINTEXT://localhost:9193"]')

        assert faulty == [
            "kafka.listeners[0].protocol: ssl needs kafka.tls with certificate_file and key_file",
            "kafka.listeners[1].protocol: sasl_plaintext needs a user in kafka.sasl.users",
        ]

    def test_faults_of_short_forms_stand_beside_other_faults(self, tmp_path: Path) -> None:
        faulty = found(tmp_path, 'listeners: ["PLAINTEXT://192.0.2.1:9192"], idle_timeout: 5')

        assert len(faulty) == 2


class TestPeers:
    SHARED = "metadata: {backend: postgres, postgres: {dsn: 'postgresql:///tierd'}}\n"
    LISTENERS = 'listeners: ["PLAINTEXT://localhost:9192"]'

    def test_peer_has_one_address_or_one_for_each_listener(self, tmp_path: Path) -> None:
        peers = "peers: [{node_id: 2, address: localhost:1}, {node_id: 3, listeners: {PLAINTEXT: '127.0.0.1:2'}}]"
        kafka = load(tmp_path, f"{self.LISTENERS}, node_id: 1, {peers}", rest=self.SHARED).kafka

        assert [peer.address_for("PLAINTEXT") for peer in kafka.peers] == [("localhost", 1), ("127.0.0.1", 2)]

    @pytest.mark.parametrize(
        ("own", "peer", "problem"),
        [
            ("localhost", "b", "b:9192 is for clients of others, listener PLAINTEXT for clients of this host"),
            ("a", "localhost", "localhost:9192 is for clients of their own host alone, listener PLAINTEXT for clients"),
        ],
    )
    def test_no_client_is_sent_to_the_loopback_interface_of_another_host(
        self, tmp_path: Path, own: str, peer: str, problem: str
    ) -> None:
        section = f'listeners: ["PLAINTEXT://{own}:9192"], allow_plaintext: true'
        (fault,) = found(tmp_path, f"{section}, peers: [{{node_id: 2, address: {peer}:9192}}]", rest=self.SHARED)

        assert problem in fault

    def test_groups_of_several_daemons_need_a_shared_store(self, tmp_path: Path) -> None:
        (fault,) = found(tmp_path, f"{self.LISTENERS}, peers: [{{node_id: 2, address: localhost:1}}]")

        assert fault == (
            "kafka.peers: groups of several daemons need a metadata store that they share: set metadata.backend to "
            "postgres or redis"
        )

    @pytest.mark.parametrize(
        ("peer", "problem"),
        [
            ("{node_id: 2}", "node_id: set address, or listeners"),
            ("{node_id: 2, address: a:1, listeners: {PLAINTEXT: a:1}}", "address: set address, or listeners"),
            ("{node_id: 2, listeners: {SSL: a:1}}", "no listener of this endpoint is named SSL: there are PLAINTEXT"),
            ("{node_id: 2, listeners: {SSL: a:1}}", "has no address for the listener PLAINTEXT"),
            ("{node_id: 2, listeners: {PLAINTEXT: a}}", "listeners: 'a' is no address of a broker"),
            ("{node_id: 2, listeners: [a]}", "is no set of addresses"),
            ("{node_id: 1, address: a:1}", "1 is the node_id of another endpoint"),
        ],
    )
    def test_peer_that_clients_could_not_use_is_a_fault(self, tmp_path: Path, peer: str, problem: str) -> None:
        faulty = found(tmp_path, f"{self.LISTENERS}, node_id: 1, peers: [{peer}]", rest=self.SHARED)

        assert any(problem in fault for fault in faulty), faulty

    def test_one_address_does_not_do_for_several_listeners(self, tmp_path: Path) -> None:
        listeners = f'listeners: ["PLAINTEXT://localhost:9192", "SSL://localhost:9193"], {TLS}'
        (fault,) = found(tmp_path, f"{listeners}, peers: [{{node_id: 2, address: localhost:1}}]", rest=self.SHARED)

        assert fault == (
            "kafka.peers[0].address: this endpoint has several listeners: set listeners, with the address of each"
        )

    def test_node_id_of_the_broker_counts_for_this_daemon(self, tmp_path: Path) -> None:
        rest = f"{self.SHARED}node_id: 2\n"
        (fault,) = found(tmp_path, f"{self.LISTENERS}, peers: [{{node_id: 2, address: localhost:1}}]", rest=rest)

        assert fault == "kafka.peers[0].node_id: 2 is the node_id of this daemon: each needs its own"


class TestLogins:
    def test_users_have_a_password_or_hashes(self, tmp_path: Path) -> None:
        (tmp_path / "password").write_text("from-a-file\n")
        hashed = f"{{name: d, scram_sha_256: '{HASH_256}'}}"
        users = f"users: [{{name: a, password: b}}, {{name: c, password_file: ./password}}, {hashed}]"
        kafka = load(tmp_path, f"sasl: {{mechanisms: [PLAIN, SCRAM-SHA-256], {users}}}").kafka

        passwords = [user.password and user.password.get_secret_value() for user in kafka.sasl.users]
        assert passwords == ["b", "from-a-file", None]
        assert kafka.sasl.users[2].has_hash

    @pytest.mark.parametrize(
        ("users", "problem"),
        [
            ("[{name: a}]", "user a has no password"),
            ("[{name: a, password: b}, {name: a, password: c}]", "user a is listed twice"),
            (f"[{{name: a, password: b, scram_sha_256: '{HASH_256}'}}]", "password and scram_sha_256 are both set"),
            (f"[{{name: a, scram_sha_256: '{HASH_256}'}}]", "it has no hash for any of SCRAM-SHA-512"),
            (f"[{{name: a, scram_sha_512: '{HASH_256}'}}]", "stored_key has 32 bytes, not the 64 of sha512"),
            ("[{name: a, password: ''}]", "must not be empty"),
        ],
    )
    def test_user_that_could_not_log_in_is_a_fault(self, tmp_path: Path, users: str, problem: str) -> None:
        (fault,) = found(tmp_path, f"sasl: {{users: {users}}}")

        assert problem in fault

    def test_no_secret_is_in_the_text_of_the_settings(self, tmp_path: Path) -> None:
        users = f"users: [{{name: a, password: hunter2hunter2}}, {{name: d, scram_sha_256: '{HASH_256}'}}]"
        tls = "tls: {certificate_file: /c, key_file: /k, key_password: hunter2hunter2}"
        config = load(tmp_path, f"sasl: {{mechanisms: [PLAIN], {users}}}, {tls}")

        for text in (repr(config), str(config), config.model_dump_json()):
            assert "hunter2" not in text
            assert HASH_256[:20] not in text

    def test_certificates_of_clients_need_an_authority(self, tmp_path: Path) -> None:
        (fault,) = found(tmp_path, f"{TLS[:-1]}, client_certificates: required}}")

        assert fault == (
            "kafka.tls.client_certificates: required needs client_ca_file, which signs the certificates of clients"
        )


class TestOthers:
    def test_quarantine_names_listeners_that_exist(self, tmp_path: Path) -> None:
        (fault,) = found(tmp_path, 'listeners: ["PLAINTEXT://localhost:9192"], quarantine: {listeners: [RESTORED]}')

        assert fault == "kafka.quarantine.listeners[0]: no listener is named RESTORED: there are PLAINTEXT"

    def test_session_timeouts_are_a_range(self, tmp_path: Path) -> None:
        (fault,) = found(tmp_path, "groups: {min_session_timeout: 1h}")

        assert fault == "kafka.groups.max_session_timeout: must not be less than min_session_timeout"

    def test_cluster_id_is_never_that_of_the_brokers(self, tmp_path: Path) -> None:
        assert KafkaEndpointSettings().endpoint_cluster_id("abc") == "abc-tierd"
        assert load(tmp_path, "cluster_id: own").kafka.endpoint_cluster_id("abc") == "own"

    @pytest.mark.parametrize("address", ["a", "a:0", 5, None, "a:99999", ["a:1"]])
    def test_address_that_nobody_can_reach_is_refused(self, address: object) -> None:
        with pytest.raises(ValueError, match="is no address of a broker"):
            broker_address(address)


class TestWarnings:
    def warnings(self, tmp_path: Path, section: str) -> list[str]:
        return [str(each) for each in config_warnings(load(tmp_path, section)) if each.key.startswith("kafka.")]

    def test_plain_listener_for_other_hosts_is_questionable(self, tmp_path: Path) -> None:
        section = "listeners: [{listen: tierd-1.example.com:9192}], allow_plaintext: true, access: [{topics: [a]}]"

        (warning,) = self.warnings(tmp_path, section)

        assert warning.startswith("kafka.listeners[0].protocol: plaintext on another interface than loopback")
        assert warning.endswith("records can be read and changed on the way")

    def test_password_in_the_clear_is_named(self, tmp_path: Path) -> None:
        sasl = "sasl: {mechanisms: [PLAIN], users: [{name: etl, password: secret-1}]}"
        listener = "listeners: [{protocol: sasl_plaintext, listen: 192.0.2.1:9192}], allow_plaintext: true"

        (warning,) = self.warnings(tmp_path, f"{listener}, {sasl}")

        assert warning.endswith("records can be read and changed on the way, and passwords can be read")

    @pytest.mark.parametrize(
        ("section", "is_open"),
        [
            (f"listeners: [{{protocol: ssl, listen: 192.0.2.1:9192}}], {TLS}", True),
            (f"listeners: [{{protocol: ssl, listen: 192.0.2.1:9192}}], {TLS}, access: [{{topics: [a]}}]", False),
            (f"listeners: [{{protocol: sasl_ssl, listen: 192.0.2.1:9192}}], {TLS}, {USERS}", False),
            (
                f"listeners: [{{protocol: ssl, listen: 192.0.2.1:9192}}], {TLS[:-1]}, {CLIENTS}}}",
                False,
            ),
            ('listeners: ["PLAINTEXT://localhost:9192"]', False),
        ],
    )
    def test_listener_that_lets_every_host_read_everything_is_questionable(
        self, tmp_path: Path, section: str, is_open: bool
    ) -> None:
        assert [each for each in self.warnings(tmp_path, section) if "reads all topics" in each] == (
            ["kafka.access: every client that reaches listener SSL reads all topics without a login"] if is_open else []
        )

"""Settings come from three sources, and a wrong one is told apart from all others."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import SettingInvalid
from holdfast.runtime.settings import Loaded, load


def loaded(
    folder: Path,
    flags: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
    **options: Any,
) -> Loaded:
    """Load settings in *folder*."""
    return load(flags or {}, environment or {}, folder=folder, **options)


def test_flags_beat_the_environment_and_the_environment_beats_the_file(tmp_path: Path) -> None:
    """The nearer a source is to the command, the more it counts, setting by setting."""
    (tmp_path / "holdfast.toml").write_text('slots = 3\nttl = "1m"\npoll = 9\nqueues = ["a", "b"]\n')
    found = loaded(
        tmp_path,
        {"slots": "5", "ttl": None},
        {"HOLDFAST_SLOTS": "4", "HOLDFAST_POLL": "500ms", "HOME": "elsewhere"},
    )
    assert (found.settings.slots, found.settings.ttl, found.settings.poll) == (5, 60.0, 0.5)
    assert found.settings.queues == ("a", "b")
    assert found.sources["slots"] == "--slots"
    assert found.sources["poll"] == "HOLDFAST_POLL"
    assert found.sources["ttl"] == "holdfast.toml"
    assert found.sources["grace"] == "default"


def test_a_file_may_be_named(tmp_path: Path) -> None:
    """A named file replaces holdfast.toml, by flag or by variable."""
    (tmp_path / "holdfast.toml").write_text("slots = 3")
    (tmp_path / "other.toml").write_text("slots = 4")
    assert loaded(tmp_path, file=Path("other.toml")).settings.slots == 4
    assert loaded(tmp_path, environment={"HOLDFAST_CONFIG": "other.toml"}).settings.slots == 4
    with pytest.raises(SettingInvalid, match=r"file missing\.toml cannot be read"):
        loaded(tmp_path, file=Path("missing.toml"))


def test_a_named_file_is_told_with_its_folder(tmp_path: Path) -> None:
    """Its last part alone may be the name of another one, which is there and well."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "prod.toml").write_text("slots = 0")
    with pytest.raises(SettingInvalid, match=r"^the settings file /no/where cannot be read: No such file"):
        loaded(tmp_path, environment={"HOLDFAST_CONFIG": "/no/where"})
    with pytest.raises(SettingInvalid, match=r"^the settings file conf cannot be read"):
        loaded(tmp_path, file=Path("conf"))
    with pytest.raises(SettingInvalid, match=r"^slots \(from conf/prod.toml\) is 0"):
        loaded(tmp_path, file=Path("conf/prod.toml"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("slots = 0", r"^slots \(from holdfast.toml\) is 0: give a whole number from 1 to 10000$"),
        ("slots = true", r"^slots \(from holdfast.toml\) is True: give a whole number"),
        (
            'ttl = "soon"',
            r"^ttl \(from holdfast.toml\) is 'soon': give seconds, or a number with ms, s, m, h or d",
        ),
        ("ttl = nan", r"^ttl \(from holdfast.toml\) is nan: give seconds"),
        ("queues = [1]", r"^queues \(from holdfast.toml\) is \[1\]: give names"),
        ('schema = "Prod"', r"^schema \(from holdfast.toml\) is 'Prod': give at most 63 lower-case letters"),
        ("slot = 1", r"^slot in holdfast.toml is no setting of Holdfast: did you mean slots\?$"),
        ("slots = ", r"^the settings file holdfast.toml is not TOML"),
        ('app = "shop"', r"^app \(from holdfast.toml\) is 'shop': give module:name of a holdfast.App$"),
    ],
)
def test_a_bad_file_names_setting_source_and_what_is_allowed(tmp_path: Path, text: str, told: str) -> None:
    """Whoever made the mistake learns where it is and what to write instead."""
    (tmp_path / "holdfast.toml").write_text(text)
    with pytest.raises(SettingInvalid, match=told):
        loaded(tmp_path)


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("HOLDFAST_SLOT", "1", r"^HOLDFAST_SLOT in the environment is no setting .* mean HOLDFAST_SLOTS\?$"),
        ("HOLDFAST_XYZZY", "1", r"no setting of Holdfast: see `holdfast settings`$"),
        ("HOLDFAST_SLOTS", "many", r"^slots \(from HOLDFAST_SLOTS\) is 'many'"),
        ("HOLDFAST_LISTEN", "perhaps", r"^listen \(from HOLDFAST_LISTEN\) is 'perhaps': give true or false$"),
        ("HOLDFAST_LOG_FORMAT", "xml", r"is 'xml': give one of auto, human, json$"),
        ("HOLDFAST_QUEUES", "a,,b", r"^queues \(from HOLDFAST_QUEUES\) is 'a,,b'"),
        ("HOLDFAST_GRACE", "-1", r"^grace \(from HOLDFAST_GRACE\) is '-1'"),
        (
            "HOLDFAST_HTTP_PROXIES",
            "10.0.0.2,localhost",
            r"^http_proxies .* is '10.0.0.2,localhost': give addr",
        ),
        (
            "HOLDFAST_HTTP_PROXIES",
            "10.0.0.2/8",
            r"^http_proxies .* is '10.0.0.2/8': give addresses or networks",
        ),
        ("HOLDFAST_HTTP_PROXIES", "*", r"^http_proxies .* is '\*': give addresses or networks"),
    ],
)
def test_a_bad_variable_is_named(tmp_path: Path, variable: str, value: str, told: str) -> None:
    """A variable with our prefix is ours: a misspelt one is an error and not silence."""
    with pytest.raises(SettingInvalid, match=told):
        loaded(tmp_path, environment={variable: value})


@pytest.mark.parametrize("service", ["", "HTTP_", "METRICS_", "SERVICE_", "8700_"])
def test_what_kubernetes_says_of_its_services_is_no_setting(tmp_path: Path, service: str) -> None:
    """A Service called holdfast, or holdfast-http, is in the environment of every container beside it."""
    host, port = "10.96.0.17", "8700"
    links = {
        "SERVICE_HOST": host,
        "SERVICE_PORT": port,
        "SERVICE_PORT_HTTP": port,
        "PORT": f"tcp://{host}:{port}",
        "PORT_8700_TCP": f"tcp://{host}:{port}",
        "PORT_8700_TCP_PROTO": "tcp",
        "PORT_8700_TCP_PORT": port,
        "PORT_8700_TCP_ADDR": host,
        "PORT_53_UDP": f"udp://{host}:53",
    }
    found = loaded(tmp_path, environment={f"HOLDFAST_{service}{name}": v for name, v in links.items()})
    assert set(found.sources.values()) == {"default"}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HOLDFAST_PORT", "8700"),
        ("HOLDFAST_HTP_PORT", "8700"),
        ("HOLDFAST_HTTP_PORT", "http://10.96.0.17:8700"),
        ("HOLDFAST_SERVICE", "tcp://10.96.0.17:8700"),
        ("HOLDFAST_PORT_TCP", "8700"),
        ("HOLDFAST_SERVICE_HOSTS", "10.96.0.17"),
    ],
)
def test_what_only_looks_like_it_is_still_told(tmp_path: Path, variable: str, value: str) -> None:
    """A misspelt setting must not be taken for a Service."""
    with pytest.raises(SettingInvalid):
        loaded(tmp_path, environment={variable: value})


def test_proxies_are_addresses_and_networks(tmp_path: Path) -> None:
    """Of both families, as they are written."""
    proxies = {"HOLDFAST_HTTP_PROXIES": "10.0.0.2, 10.1.0.0/16, ::1"}
    assert loaded(tmp_path, environment=proxies).settings.http_proxies == ("10.0.0.2", "10.1.0.0/16", "::1")


def test_a_bad_address_never_shows_its_password(tmp_path: Path) -> None:
    """The value of a secret setting is not repeated in the error."""
    with pytest.raises(
        SettingInvalid, match=r"database_url \(from HOLDFAST_DATABASE_URL\) is not usable"
    ) as caught:
        loaded(tmp_path, environment={"HOLDFAST_DATABASE_URL": "mysql://u:hunter2@host/x"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "read"),
    [("65536", 65536), ("64KiB", 65536), ("2 MiB", 2 * 1024**2), ("1GiB", 1024**3), (4096, 4096)],
)
def test_a_size_is_bytes_or_a_number_with_its_unit(tmp_path: Path, value: object, read: int) -> None:
    """Units are powers of 1024, and their names say so."""
    assert load({"log_limit": value}, {}, folder=tmp_path).settings.log_limit == read


@pytest.mark.parametrize("value", ["12", "1.5MiB", "64MB", "-1", True, 2**63, "9" * 15 + "GiB"])
def test_a_size_that_is_none_is_named(tmp_path: Path, value: object) -> None:
    """Too little, too much, and units that mean two things are refused."""
    with pytest.raises(SettingInvalid, match="log_limit"):
        load({"log_limit": value}, {}, folder=tmp_path)


@pytest.mark.parametrize("setting", ["http_host", "metrics_host"])
@pytest.mark.parametrize(
    ("given", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("[fe80::1%eth0]", "fe80::1%eth0"),
        (" localhost ", "localhost"),
    ],
)
def test_a_place_to_listen_may_have_the_brackets_of_a_url(
    tmp_path: Path, setting: str, given: str, host: str
) -> None:
    """A socket takes it without them."""
    assert getattr(load({setting: given}, {}, folder=tmp_path).settings, setting) == host


@pytest.mark.parametrize("setting", ["http_host", "metrics_host"])
@pytest.mark.parametrize("given", ["[::1]:9090", "127.0.0.1:9090", "[localhost]", "http://x", "[::1", "", 7])
def test_a_place_to_listen_with_a_port_is_named(tmp_path: Path, setting: str, given: object) -> None:
    """Not as a port that is taken; the port has a setting of its own."""
    with pytest.raises(SettingInvalid, match=rf"{setting} .*127\.0\.0\.1 or ::1, without a port"):
        load({setting: given}, {}, folder=tmp_path)


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:8700", "https://holdfast.example.com/", "http://[::1]:1", "https://ä.example:65535"],
)
def test_the_address_of_a_service_is_kept_as_given(tmp_path: Path, address: str) -> None:
    """Names, IPv4 and IPv6, with and without a port."""
    assert load({"server": address}, {}, folder=tmp_path).settings.server == address


@pytest.mark.parametrize(
    "address",
    [
        "ftp://x",
        "http://",
        "http://x:99999",
        "http://x:0",
        "http://x:abc",
        "http://[::1",
        "http://[1::2::3]",
        "http://x/path",
        "http://u:p@x",
        "http://x\n",
        7,
    ],
)
def test_what_can_be_no_address_of_a_service_is_named(tmp_path: Path, address: object) -> None:
    """Before anybody tries to connect there, and finds other words for it."""
    with pytest.raises(SettingInvalid, match=r"server .*: give an address such as https://"):
        load({"server": address}, {}, folder=tmp_path)

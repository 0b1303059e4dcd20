"""A run's view of the host, as data: what bubblewrap is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from formica.adapters.bubblewrap import ARGUMENTS_DESCRIPTOR, Profile, arguments, descriptors

STATE = Path("/home/me/.local/state/formica")
TREE = STATE / "items/7/tree"
PROFILE = Profile(
    home=STATE / "items/7/run/home",
    cwd=TREE,
    system={Path("/usr"): "", Path("/bin"): "usr/bin"},
    readable=[Path("/home/me/.pyenv/versions/3.12"), STATE / "mirrors/m/objects"],
    writable=[TREE, STATE / "items/7/repo.git"],
    placed={Path("/run/formica/launcher.py"): Path("/opt/formica/launcher.py")},
)


def sources(words: list[str], option: str) -> list[str]:
    return [words[at + 1] for at, word in enumerate(words) if word == option]


def test_only_what_is_named_is_bound() -> None:
    """Read-only and writable binds are those of the profile; everything else of /etc is optional and listed."""
    words = arguments(PROFILE)
    assert sources(words, "--bind") == [str(STATE / "items/7/repo.git"), str(TREE)]
    assert sources(words, "--ro-bind") == [
        "/usr",
        "/opt/formica/launcher.py",
        "/home/me/.pyenv/versions/3.12",
        str(STATE / "mirrors/m/objects"),
    ]
    assert all(path.startswith("/etc/") for path in sources(words, "--ro-bind-try"))
    assert not {"/etc/shadow", "/etc/ssh", "/etc/ssl", "/etc/pki"} & set(sources(words, "--ro-bind-try"))


def test_every_namespace_is_the_runs_own() -> None:
    """Processes, network, users, mounts and the terminal are not the host's, and it dies with its parent."""
    words = arguments(PROFILE)
    for option in (
        "--unshare-all",
        "--unshare-user",
        "--disable-userns",
        "--die-with-parent",
        "--new-session",
    ):
        assert option in words
    assert "--clearenv" in words
    assert not {"--share-net", "--dev-bind", "--cap-add", "--setenv"} & set(words)


def test_root_and_devices_cannot_be_written() -> None:
    """What holds the mounts together is made read-only, after everything is in its place."""
    words = arguments(PROFILE)
    assert sources(words, "--remount-ro") == ["/dev", "/"]
    assert words[-4:] == ["--remount-ro", "/", "--chdir", str(TREE)]


def test_scratch_space_is_bounded() -> None:
    """Each tmpfs has a size: they are memory of the host."""
    words = arguments(replace(PROFILE, scratch_bytes=4096))
    places = ["/dev/shm", "/tmp", str(PROFILE.home)]
    assert sources(words, "--tmpfs") == places
    assert sources(words, "--size") == ["4096"] * 3


def test_a_home_of_the_callers_is_kept() -> None:
    """HOME below a writable folder is that folder: verification keeps what its set-up downloaded."""
    home = STATE / "items/7/verify/home-1"
    words = arguments(replace(PROFILE, home=home, writable=[TREE, home]))
    assert str(home) in sources(words, "--bind")
    assert str(home) not in sources(words, "--tmpfs")


def test_what_is_private_is_covered_where_a_folder_above_is_shown() -> None:
    """State folder, checkout and key files stay hidden inside a wide folder; the run's tree is bound below."""
    shown = replace(
        PROFILE,
        readable=[Path("/home/me")],
        hidden_folders=[STATE, Path("/srv/elsewhere")],
        hidden_files=[Path("/home/me/key")],
    )
    words = arguments(shown)
    assert str(STATE) in sources(words, "--tmpfs")
    assert "/srv/elsewhere" not in words
    assert words[words.index("/home/me/key") - 2 : words.index("/home/me/key")] == ["--ro-bind", "/dev/null"]
    order = [words.index(str(path)) for path in (Path("/home/me"), STATE, TREE)]
    assert order == sorted(order)


def test_the_words_go_through_a_descriptor() -> None:
    """bubblewrap's own command line tells nothing; users and hosts are made up."""
    given = descriptors(PROFILE)
    assert given[str(ARGUMENTS_DESCRIPTOR)].split("\0")[:-1] == arguments(PROFILE)
    texts = "".join(text for number, text in given.items() if number != str(ARGUMENTS_DESCRIPTOR))
    assert "agent:x:1000:1000" in texts
    assert "127.0.0.1 localhost" in texts
    files = [
        word
        for word, option in zip(arguments(PROFILE)[1:], arguments(PROFILE), strict=False)
        if option == "--file"
    ]
    assert set(files) == set(given) - {str(ARGUMENTS_DESCRIPTOR)}


def test_an_older_bubblewrap_does_without_the_last_option() -> None:
    """--disable-userns is left out where the installed version has none."""
    assert "--disable-userns" not in arguments(replace(PROFILE, disable_userns=False))

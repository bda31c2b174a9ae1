"""Whatever a file does to the process that reads it, the next document is read none the less."""

import fcntl
import os
import resource
import sys
import tempfile
import threading
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from recollect.errors import HeldOff, Parked, Permanent, RecollectError, Transient, Unavailable
from recollect.extract import Limits, Sandbox
from recollect.extract._children import Children
from recollect.model import Blob
from recollect.sandbox.heavy_queue import HeavyQueue
from recollect.sandbox.processes import Zygote
from tests.conftest import eventually
from tests.extract import samples
from tests.extract.archives import packed
from tests.extract.conftest import ROGUES, deed, needs_linux
from tests.extract.rogues import rogue


@pytest.fixture
def children():
    """The child processes that this test started and that live."""
    before = set(psutil.Process().children())
    return lambda: [child for child in psutil.Process().children() if child not in before]


def _works(sandbox):
    return sandbox.extract(Blob(b"good", name="good.txt")).text == "good"


def pid(sandbox, words="pid"):
    return int(deed(sandbox, words).removeprefix("done "))


def has_ended(child):
    """It may have before anybody could look, if this process was kept waiting."""
    try:
        return psutil.Process(child).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("segfault", "extraction_crashed"),
        ("abort", "extraction_crashed"),
        ("bug", "extraction_crashed"),
        ("exit 0", "extraction_crashed"),
        ("exit 3", "extraction_crashed"),
        ("babble", "extraction_crashed"),
        ("boast", "extraction_crashed"),
        ("spin", "extraction_timeout"),
        ("eat-unnoticed", "extraction_memory"),
        ("recurse", "unreadable_content"),
        ("refuse it is locked", "encrypted_file"),
    ],
)
def test_a_file_that_breaks_its_reader_fails_alone(strict, words, code):
    with pytest.raises(Permanent) as caught:
        deed(strict, words)

    assert caught.value.code == code
    assert '"x.rogue"' in str(caught.value)
    assert _works(strict)


def test_a_file_whose_reader_is_killed_is_read_again(strict):
    """As by a system without memory, which takes whichever process it likes."""

    def kill():
        for zygote in psutil.Process().children():
            for reader in zygote.children():
                with suppress(psutil.NoSuchProcess):
                    if sum(reader.cpu_times()[:2]) >= 0.2:  # it reads: those that wait use none
                        reader.kill()
                        return True
        return False

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(deed, strict, "burn 0.6")
        eventually(kill)
        assert reading.result() == "done None"


def test_a_file_whose_readers_are_killed_waits_for_memory(strict):
    with pytest.raises(
        Transient, match=r'"x\.rogue" cannot be read: its reader was killed'
    ) as caught:
        deed(strict, "killed")

    assert caught.value.code == "extraction_memory"
    assert caught.value.after
    assert _works(strict)


def test_a_reader_that_waits_for_ever_is_ended():
    # A larger file has more time: what is to be read after this is not to be ended as well.
    limits = Limits(cpu_seconds=1, cpu_seconds_per_mb=60, wall_factor=1)
    with Sandbox(workers=1, packages=[ROGUES], limits=limits) as sandbox:
        with pytest.raises(Permanent, match="takes more than 1 s") as caught:
            deed(sandbox, "hang")

        assert caught.value.code == "extraction_timeout"
        large = "good " * 200_000
        assert sandbox.extract(Blob(large.encode(), name="good.txt")).text == large.strip()


def test_a_reader_that_closes_its_pipe_and_lives_on_is_ended(strict, children):
    with pytest.raises(Permanent) as caught:
        deed(strict, "hang-up")

    assert caught.value.code == "extraction_crashed"
    assert _works(strict)
    assert len(children()) <= 1


def test_eating_memory_ends_at_the_limit(strict):
    assert deed(strict, "eat") == "denied MemoryError"
    assert _works(strict)


def test_running_out_of_memory_in_an_extractor_is_said_so():
    tight = Limits(memory_bytes=120_000_000)
    with Sandbox(workers=1, limits=tight) as sandbox:
        with pytest.raises(Permanent, match="memory") as caught:
            sandbox.extract(Blob(b"a;b\n" * 5_000_000, name="a.csv"))

        assert caught.value.code == "extraction_memory"
        assert _works(sandbox)


def test_a_pdf_that_computes_for_ever_is_ended():
    # It takes half a gigabyte a second of a fast processor: time is to come to its end first.
    limits = Limits(cpu_seconds=1, wall_factor=60, memory_bytes=6_000_000_000)
    with Sandbox(workers=1, limits=limits) as sandbox:
        with pytest.raises(Permanent, match="1 s of processor time") as caught:
            sandbox.extract(Blob(samples.form_fan_pdf(), name="fan.pdf"))

        assert caught.value.code == "extraction_timeout"
        assert sandbox.extract(Blob(samples.pdf("good"), name="a.pdf")).text == "good"


def test_a_crash_keeps_the_trace_for_the_log(strict):
    with pytest.raises(Permanent) as caught:
        deed(strict, "bug")

    assert "ValueError: a case that nobody thought of" in caught.value.__notes__[0]


def test_what_a_library_prints_is_no_answer(sandbox):
    assert deed(sandbox, "print hello") == "done hello"


def test_text_beyond_the_limit_is_cut_between_characters(strict):
    extracted = strict.extract(Blob(b"long 5000", name="x.rogue"))

    assert extracted.text == "done " + "ä" * 497
    assert "first 1,000 bytes" in extracted.warnings[0]


def test_whatever_an_extractor_gives_comes_out_clean(sandbox):
    assert deed(sandbox, "dirty") == "done ab\ufffdc\nd\n\n\n\ne"


def test_a_file_larger_than_allowed_is_refused_unread(children):
    with Sandbox(workers=1, limits=Limits(input_bytes=10)) as sandbox:
        with pytest.raises(Permanent, match="11 bytes") as caught:
            sandbox.extract(Blob(b"12345678901", name="a.txt"))

        assert caught.value.code == "too_large"
        assert not children()


def test_what_nobody_reads_is_refused_without_a_child(children):
    with Sandbox(workers=1) as sandbox, pytest.raises(Permanent) as caught:
        sandbox.extract(Blob(b"\x7fELF\x02\x01\x01\x00", name="a.out"))

    assert caught.value.code == "unsupported_kind"
    assert not children()


def test_time_grows_with_size_up_to_a_cap():
    limits = Limits()

    assert [limits.cpu(size * 1_000_000) for size in (0, 5, 50, 500)] == [30, 35, 80, 300]
    assert limits.wall(5_000_000) == 70


def test_threads_share_it_and_get_their_own_answers(sandbox):
    def task(number: int) -> bool:
        if number % 7 == 3:
            with pytest.raises(Permanent):
                deed(sandbox, "segfault")
            return True
        return deed(sandbox, f"echo {number}") == f"done {number}"

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(task, range(32)))


@pytest.mark.costly
def test_no_process_reads_two_files(sandbox):
    pids = [deed(sandbox, words) for words in ["pid", "heavy pid"] * 3]

    assert len(set(pids)) == 6


def owned(sandbox: Sandbox, owner: str, words: str) -> str:
    blob = Blob(words.encode(), mime="application/x-rogue", name="x.rogue")
    return sandbox.extract(blob, owner=owner).text


def test_a_process_reads_files_of_one_owner_only(sandbox):
    mine = {owned(sandbox, "a", "pid") for _ in range(5)}
    others = {owned(sandbox, "b", "pid") for _ in range(5)}
    nobodys = {deed(sandbox, "pid") for _ in range(3)}

    assert (len(mine), len(others), len(nobodys)) == (1, 1, 3)
    assert not mine & others
    assert not (mine | others) & nobodys


def test_a_process_reads_so_many_files_and_no_large_one_before_another(children):
    with Sandbox(workers=1, packages=[ROGUES], files_per_child=2) as sandbox:
        assert len({owned(sandbox, "a", "pid") for _ in range(6)}) == 3
        large = "pid" + " " * 5_000_000
        assert len({owned(sandbox, "a", large) for _ in range(3)}) == 3
    with Sandbox(workers=1, packages=[ROGUES], files_per_child=1) as sandbox:
        assert len({owned(sandbox, "a", "pid") for _ in range(4)}) == 4


def test_a_file_that_takes_its_reader_over_reaches_no_other_owner(sandbox):
    assert owned(sandbox, "taken", "take-over") == "done taken over"

    for words in ("the next", "one more"):
        assert owned(sandbox, "b", f"echo {words}") == f"done {words}"
    assert _works(sandbox)


def test_a_file_is_not_blamed_for_what_another_did_to_its_reader(sandbox):
    assert owned(sandbox, "trapped", "booby-trap") == "done set"

    assert owned(sandbox, "trapped", "echo mine") == "done mine"


def test_few_processes_wait_for_more_of_their_owners(children):
    with Sandbox(workers=2, packages=[ROGUES]) as sandbox:
        for number in range(6):
            assert owned(sandbox, f"owner {number}", "echo x") == "done x"
        (zygote,) = children()

        # Two that rest, and a spare one.
        eventually(lambda: len([c for c in zygote.children() if not has_ended(c.pid)]) <= 3)


def test_a_file_that_takes_its_reader_over_changes_no_other_file(sandbox):
    for heavy in ("", "heavy "):
        assert deed(sandbox, f"{heavy}take-over") == "done taken over"
        for words in ("the next", "one more"):
            assert deed(sandbox, f"{heavy}echo {words}") == f"done {words}"
        assert _works(sandbox)


@pytest.mark.parametrize("code", ["extraction_unavailable", "worker_died", "ü" * 1000])
def test_a_file_cannot_blame_the_installation(sandbox, code):
    with pytest.raises(Permanent) as caught:
        deed(sandbox, f"claim {code}")

    assert caught.value.code == "extraction_crashed"


@pytest.mark.parametrize("words", [*(f"lie {name}" for name in rogue.LIES), "surrogate", "nested"])
def test_no_lie_of_a_child_reaches_the_document(strict, words):
    with pytest.raises(Permanent) as caught:
        deed(strict, words)

    assert caught.value.code == "extraction_crashed"
    assert _works(strict)


def test_a_file_that_imports_what_is_not_there_fails_for_good(sandbox):
    with pytest.raises(Permanent) as caught:
        deed(sandbox, "import not_there")

    assert caught.value.code == "extraction_crashed"


def test_children_start_with_work_and_end_without(children):
    with Sandbox(workers=2, packages=[ROGUES], limits=Limits(idle_seconds=1)) as sandbox:
        assert not children()
        child = pid(sandbox)
        eventually(lambda: has_ended(child))
        eventually(lambda: all(has_ended(one.pid) for one in children()))

        assert _works(sandbox)


def test_closing_ends_children_and_their_callers(children):
    sandbox = Sandbox(workers=1, packages=[ROGUES])
    assert _works(sandbox)
    caught: list[RecollectError] = []

    def wait() -> None:
        with pytest.raises(Transient) as error:
            deed(sandbox, "spin")
        caught.append(error.value)

    waiting = threading.Thread(target=wait)
    waiting.start()
    (zygote,) = children()

    def busy() -> bool:
        with suppress(psutil.NoSuchProcess):  # the one before may be ending
            return any(child.cpu_times().user > 0.2 for child in zygote.children())
        return False

    eventually(busy)
    readers = zygote.children()
    sandbox.close()
    waiting.join()

    assert len(caught) == 1
    eventually(lambda: all(has_ended(child.pid) for child in [zygote, *readers]))
    with pytest.raises(Transient):
        _works(sandbox)


@pytest.mark.parametrize("program", ["/bin/false", "/nowhere/python"])
def test_a_child_that_cannot_start_is_no_fault_of_the_document(monkeypatch, program):
    monkeypatch.setattr(sys, "executable", program)
    with Sandbox(workers=1) as sandbox, pytest.raises(Unavailable, match="start"):
        _works(sandbox)


def test_a_file_is_read_although_no_child_starts_for_the_next_one(monkeypatch):
    calls: list[bool] = []

    def once(children: Children, *, heavy: bool) -> tuple[Zygote, bool]:
        calls.append(heavy)
        if len(calls) > 1:
            raise Unavailable("no process starts")
        return first(children, heavy=heavy)

    first = Children._zygote
    monkeypatch.setattr(Children, "_zygote", once)
    with Sandbox(workers=1) as sandbox:
        assert _works(sandbox)
    assert len(calls) == 2


def test_a_parser_that_is_not_installed_is_no_fault_of_the_document(sandbox):
    with pytest.raises(Unavailable, match="'not_there'"):
        sandbox.extract(Blob(b"x", name="x.absent"), forced="absent")


def test_a_reader_that_refuses_as_it_is_imported_refuses_each_file_and_no_other(sandbox):
    for _ in range(2):
        with pytest.raises(Permanent, match="such files are not read here") as caught:
            sandbox.extract(Blob(b"x", name="x.refusing"), forced="refusing")
        assert caught.value.code == "unsupported_kind"

    assert _works(sandbox)


def test_an_interrupt_of_the_terminal_is_not_for_the_children(children):
    with Sandbox(workers=1, packages=[ROGUES]) as sandbox:
        assert _works(sandbox)
        groups = {os.getpgid(child.pid) for child in children()}

    assert groups
    assert os.getpgid(0) not in groups


@pytest.mark.costly
def test_what_takes_models_has_its_own_child_and_more_memory(sandbox):
    assert deed(sandbox, "memory 3000000000").startswith("denied")
    assert deed(sandbox, "heavy memory 3000000000").startswith("done")
    assert deed(sandbox, "heavy memory 5000000000").startswith("denied")


def test_heavy_work_gives_way(sandbox):
    own = os.nice(0)
    assert deed(sandbox, "niceness") == f"done {own}"
    assert deed(sandbox, "heavy niceness") == f"done {min(own + 10, 19)}"


@needs_linux
def test_a_system_out_of_memory_kills_readers_before_the_service(children):
    with Sandbox(workers=1, packages=[ROGUES]) as sandbox:
        for words in ("niceness", "heavy niceness"):
            deed(sandbox, words)
        zygotes = children()
        assert len(zygotes) == 2
        own, *others = (
            int(Path(f"/proc/{one}/oom_score_adj").read_text("ascii"))
            for one in ("self", *(zygote.pid for zygote in zygotes))
        )
        assert others == [min(1_000, own + 500)] * 2


@needs_linux
def test_heavy_work_is_confined_as_well(sandbox):
    for words in ("udp 9", "write /tmp/x", "read /etc/passwd", "exec"):
        assert deed(sandbox, f"heavy {words}").startswith("denied")


def test_heavy_work_is_done_by_one_child_at_a_time(children):
    with Sandbox(workers=6, packages=[ROGUES]) as sandbox, ThreadPoolExecutor(6) as threads:
        stretches = [
            answer.removeprefix("done ").split()
            for answer in threads.map(lambda _: deed(sandbox, "heavy stretch"), range(12))
        ]
    stretches = sorted((float(start), float(end)) for start, end in stretches)

    assert all(end <= start for (_, end), (start, _) in pairwise(stretches))


def test_light_work_goes_on_while_heavy_work_lasts():
    with ThreadPoolExecutor(3) as threads:
        with Sandbox(workers=1, packages=[ROGUES]) as sandbox:
            first, second = (threads.submit(deed, sandbox, "heavy hang") for _ in range(2))

            assert deed(sandbox, "echo light") == "done light"
            assert not first.done()
            assert not second.done()
        assert isinstance(first.exception(), Transient)
        assert isinstance(second.exception(), Transient)


def test_who_finds_the_line_full_is_sent_away_rather_than_kept():
    with ThreadPoolExecutor(2) as threads:
        with Sandbox(workers=1, packages=[ROGUES], heavy_places=2) as sandbox:
            standing = [threads.submit(deed, sandbox, "heavy hang") for _ in range(2)]
            eventually(lambda: sandbox._line._standing == 2)

            waits = []
            for _ in range(3):
                with pytest.raises(Parked) as caught:
                    deed(sandbox, "heavy echo third")
                waits.append(caught.value.after)
            assert deed(sandbox, "echo light") == "done light"
        for one in standing:
            assert isinstance(one.exception(), Transient)

    assert waits == sorted(set(waits))  # one by one they come back


def test_who_is_sent_away_again_and_again_comes_back_before_the_line_is_long_empty():
    """Each time counted as one more who waits: a few documents waited for ten minutes before a
    reader with nothing to do."""
    now, takes = 0.0, 30.0
    line = HeavyQueue(1, clock=lambda: now)

    def enter() -> ExitStack | float:
        stack = ExitStack()
        try:
            stack.enter_context(line.join())
        except Parked as error:
            return now + (error.after or timedelta()).total_seconds()
        return stack

    with ExitStack() as threads:
        # Each stands in line with a thread of its own.
        pools = [threads.enter_context(ThreadPoolExecutor(1)) for _ in range(8)]
        coming = dict.fromkeys(pools, 0.0)
        reading: tuple[ThreadPoolExecutor, ExitStack, float] | None = None
        idle = free = 0.0
        while coming or reading:
            pool = min(coming, key=coming.__getitem__, default=None)
            if reading is not None and (pool is None or reading[2] <= coming[pool]):
                reader, place, now = reading
                reader.submit(place.close).result()
                reading, free = None, now
                continue
            assert pool is not None
            now = max(now, coming.pop(pool))
            outcome = pool.submit(enter).result()
            if isinstance(outcome, ExitStack):
                idle = max(idle, now - free)
                reading = (pool, outcome, now + takes)
            else:
                coming[pool] = outcome

    assert idle <= takes


def test_who_fails_leaves_the_line():
    with Sandbox(workers=1, packages=[ROGUES], heavy_places=1) as sandbox:
        with pytest.raises(Permanent):
            deed(sandbox, "heavy segfault")

        assert deed(sandbox, "heavy echo next") == "done next"


def test_a_job_of_many_parts_keeps_its_place_between_them():
    with (
        Sandbox(workers=1, packages=[ROGUES], heavy_places=1) as sandbox,
        ThreadPoolExecutor(1) as threads,
    ):
        with sandbox.in_line():
            assert deed(sandbox, "heavy echo one") == "done one"
            other = threads.submit(deed, sandbox, "heavy echo other")
            assert isinstance(other.exception(), Parked)
            assert deed(sandbox, "heavy echo two") == "done two"

        assert threads.submit(deed, sandbox, "heavy echo other").result() == "done other"


def test_a_heavy_child_that_dies_is_replaced(sandbox):
    with pytest.raises(Permanent, match="crashed"):
        deed(sandbox, "heavy segfault")

    assert deed(sandbox, "heavy echo fine") == "done fine"


def test_what_holds_the_models_ends_soon_without_work(children):
    limits = Limits(heavy_idle_seconds=1)
    with Sandbox(workers=1, packages=[ROGUES], limits=limits) as sandbox:
        assert _works(sandbox)
        (light,) = children()
        assert deed(sandbox, "heavy echo it") == "done it"

        # It may have ended before anybody could look.
        eventually(lambda: all(has_ended(child.pid) for child in children() if child != light))
        assert not has_ended(light.pid)
        assert deed(sandbox, "heavy echo again") == "done again"


def test_an_extractor_that_is_never_content_is_broken(sandbox):
    with pytest.raises(Permanent) as caught:
        deed(sandbox, "heavy again")

    assert caught.value.code == "extraction_crashed"


def test_processes_of_a_machine_take_turns_with_heavy_work(tmp_path):
    lock = tmp_path / "heavy.lock"
    with (
        ThreadPoolExecutor(1) as threads,
        Sandbox(workers=1, packages=[ROGUES], heavy_lock=lock) as sandbox,
    ):
        assert deed(sandbox, "heavy echo first") == "done first"
        with lock.open() as other_process:
            fcntl.flock(other_process, fcntl.LOCK_EX)
            waiting = threads.submit(deed, sandbox, "heavy echo second")
            done, _ = futures.wait([waiting], timeout=1)

            assert not done
            assert deed(sandbox, "echo light") == "done light"
        assert waiting.result() == "done second"


def test_closing_ends_those_who_wait_for_their_turn(tmp_path):
    lock = tmp_path / "heavy.lock"
    with lock.open("w") as other_process, ThreadPoolExecutor(1) as threads:
        fcntl.flock(other_process, fcntl.LOCK_EX)
        with Sandbox(workers=1, packages=[ROGUES], heavy_lock=lock) as sandbox:
            waiting = threads.submit(deed, sandbox, "heavy echo never")
            futures.wait([waiting], timeout=0.5)

        assert isinstance(waiting.exception(), Transient)


def test_a_lock_that_cannot_be_had_is_no_fault_of_the_document(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    with Sandbox(workers=1, packages=[ROGUES], heavy_lock=link) as sandbox:
        with pytest.raises(Unavailable, match="lock"):
            deed(sandbox, "heavy pid")

        assert not (tmp_path / "elsewhere").exists()


@needs_linux
def test_it_says_which_layers_hold(sandbox):
    assert sandbox.describe().split("+")[0] == "rlimits"
    assert "seccomp" in sandbox.describe()


def test_without_a_folder_for_temporary_files_everything_waits(tmp_path, monkeypatch):
    """It is full, or something that cleans up removed it: no fault of any document."""
    with Sandbox(workers=1, packages=[ROGUES]) as sandbox:
        held = psutil.Process().num_fds()
        with monkeypatch.context() as patch:
            patch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
            with pytest.raises(Unavailable, match="cannot be started"):
                _works(sandbox)
        eventually(lambda: psutil.Process().num_fds() <= held)
        assert _works(sandbox)
        with monkeypatch.context() as patch:
            patch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
            assert _works(sandbox), "the process that was started ahead reads it"
            held = psutil.Process().num_fds()
            with pytest.raises(Unavailable, match="cannot be started"):
                _works(sandbox)
        eventually(lambda: psutil.Process().num_fds() <= held)
        assert _works(sandbox)


def test_an_archive_for_which_there_is_no_room_is_tried_again_hours_later_too(sandbox):
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(HeldOff, match="no room"):
        sandbox.unpack(Blob(packed({"a.txt": b"words"}), name="a.zip"), full)


def test_a_process_with_a_thousand_open_files_extracts():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, hard), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        with Sandbox(workers=1) as sandbox:
            for words in ("words", "more"):  # the second goes to the child of the first
                found = sandbox.extract(Blob(words.encode(), name="a.txt"), owner="a")
                assert found.text == words
    finally:
        for one in opened:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

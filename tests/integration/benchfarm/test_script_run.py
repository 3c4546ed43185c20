"""A script that a rank runs behaves as plain Python would run it, and its steps are marked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.benchfarm.script_run import run_script, started, write_script

LOOP = """
import benchfarm
for _ in range(10):
    benchfarm.step()
print("done")
"""
NEIGHBOUR = "def double(number):\n    return 2 * number\n"

# What plain Python would do with each is what is expected.
AS_PLAIN = {
    "what a script knows of itself": """
        import __main__, os, sys, neighbour
        print(sys.argv, sys.path, __name__, __file__, __doc__, __package__, __spec__, __cached__)
        print(__annotations__, type(__loader__).__name__, __builtins__, __main__.os is os)
        print(sorted(globals()), neighbour.double(2))
        print(__loader__.get_source("__main__") == open(__file__).read())
        print(sorted(name for name in os.environ if name.startswith("FARM_")))
        """,
    "sys.exit": "import sys; sys.exit(3)",
    "sys.exit with a text": "import sys; sys.exit('no data')",
    "an exception": """
        def train():
            try:
                {}["loss"]
            except KeyError as error:
                raise ValueError("diverged") from error
        train()
        """,
    "an excepthook": """
        import sys
        sys.excepthook = lambda kind, error, traceback: print("hooked", kind, error)
        raise ValueError("diverged")
        """,
    "a syntax error": "x = (\n",
    "a future import is of its module alone": """
        def f(x: int): ...
        print(f.__annotations__)
        """,
    "argparse": """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--size", type=int)
        parser.parse_args(["--size", "many"])
        """,
    "much on stderr": """
        import sys
        for line in range(20_000):
            print("step", line, file=sys.stderr)
        """,
    "an exit handler and a thread that outlive the last line": """
        import atexit, pickle, threading
        class Weights: pass
        def save():
            print(type(pickle.loads(pickle.dumps(Weights()))))
        atexit.register(save)
        main_is_over = threading.main_thread().join
        threading.Thread(target=lambda: (main_is_over(), save())).start()
        """,
    "processes": """
        import multiprocessing, neighbour
        class Batch:
            def __init__(self, size): self.size = size
        def load(batch):
            return Batch(neighbour.double(batch.size))
        if __name__ == "__main__":
            for method in ("fork", "spawn", "forkserver"):
                with multiprocessing.get_context(method).Pool(2) as pool:
                    print([type(b).__name__ + str(b.size) for b in pool.map(load, [Batch(1)])])
        """,
    "an interrupt": """
        import os, signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        print("interrupted", flush=True)
        os.kill(os.getpid(), signal.SIGINT)
        """,
}


@pytest.mark.parametrize("text", AS_PLAIN.values(), ids=AS_PLAIN)
def test_a_script_runs_as_plain_python_runs_it(text: str, tmp_path: Path) -> None:
    script = write_script(tmp_path, text)
    write_script(tmp_path, NEIGHBOUR, "neighbour.py")
    plain = subprocess.run(
        [sys.executable, script, "--lr", "0.1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    ended = run_script(script, "--lr", "0.1")

    assert (ended.status, ended.output) == (plain.returncode, plain.stdout)
    if "interrupt" not in text:  # whose traceback goes through all that runs
        assert ended.error == plain.stderr


@pytest.mark.parametrize("name", ["main.py", "__main__.py"])
def test_a_folder_runs_by_its_main_file(name: str, tmp_path: Path) -> None:
    text = "import neighbour, os, sys; print(os.path.basename(sys.argv[0]), neighbour.double(2))"
    write_script(tmp_path, text, name)
    write_script(tmp_path, NEIGHBOUR, "neighbour.py")
    with started(tmp_path, output=tmp_path) as running:
        ended = running.end()

    assert (ended.status, ended.output) == (0, f"{name} 4\n")


def test_a_script_that_is_missing_is_plain_pythons_status(tmp_path: Path) -> None:
    ended = run_script(tmp_path / "absent.py")

    assert ended.status == 2
    assert "absent.py': No such file or directory" in ended.error


def test_every_step_that_a_script_tells_of_is_a_mark(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        """
        import sys, benchfarm
        for step in range(3):
            benchfarm.step(examples=32, loss=1 / (step + 1), accuracy=float("nan"))
        print(sorted({"torch", "keras", "tensorflow", "numpy"} & set(sys.modules)))
        """,
    )
    ended = run_script(script)
    times_s = [mark.pop("monotonic_s") for mark in ended.marks]

    assert times_s == sorted(times_s)
    assert ended.marks == [
        {"mark": n, "examples": 32, "loss": 1 / n, "accuracy": "nan"} for n in (1, 2, 3)
    ]
    assert (ended.status, ended.output) == (0, "[]\n")


def test_the_last_mark_ends_a_script_in_order(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        """
        import atexit, benchfarm
        atexit.register(print, "exit handler")
        try:
            while True:
                benchfarm.step()
        finally:
            print("finally")
        print("not reached")
        """,
    )
    ended = run_script(script, last_mark=4)

    assert ended.numbers() == [1, 2, 3, 4]
    assert (ended.status, ended.output, ended.error) == (0, "finally\nexit handler\n", "")


def test_a_script_that_catches_everything_is_asked_to_end_at_each_later_mark(
    tmp_path: Path,
) -> None:
    script = write_script(
        tmp_path,
        """
        import benchfarm
        caught = 0
        for _ in range(10):
            try:
                benchfarm.step()
            except:
                caught += 1
        print(caught)
        """,
    )
    ended = run_script(script, last_mark=4)

    assert ended.numbers() == [1, 2, 3, 4]
    assert (ended.status, ended.output) == (0, "7\n")


def test_only_the_process_that_was_started_writes(tmp_path: Path) -> None:
    """The pipe ends with it too, though a child goes on."""
    script = write_script(
        tmp_path,
        """
        import multiprocessing, os, subprocess, sys, benchfarm
        def child():
            for _ in range(20):
                benchfarm.step()
        if __name__ == "__main__":
            benchfarm.step()
            for method in ("fork", "spawn"):
                process = multiprocessing.get_context(method).Process(target=child)
                process.start()
                process.join()
                print(process.exitcode)
            loop = "import benchfarm\\nfor _ in range(20): benchfarm.step()"
            print(subprocess.run([sys.executable, "-c", loop]).returncode, flush=True)
            benchfarm.step()
            if os.fork() == 0:
                sys.stdin.read()
        """,
    )
    with started(script, last_mark=3) as running:
        ended = running.end()

    assert ended.numbers() == [1, 2]
    assert (ended.status, ended.output) == (0, "0\n0\n0\n")


@pytest.mark.parametrize(
    "call",
    [
        "os.execv(sys.executable, [sys.executable, *sys.argv, 'again'])",
        "os.execvp(sys.executable, [sys.executable, *sys.argv, 'again'])",
        "os.execle(sys.executable, sys.executable, *sys.argv, 'again', dict(os.environ))",
    ],
)
def test_a_script_that_starts_itself_anew_is_still_watched(call: str, tmp_path: Path) -> None:
    text = f"""
        import os, sys, benchfarm
        if "again" not in sys.argv:
            {call}
        print(sys.argv[1:], flush=True)
        while True:
            benchfarm.step()
        """
    ended = run_script(write_script(tmp_path, text), "--lr", "0.1", last_mark=3)

    assert (ended.status, ended.output) == (0, "['--lr', '0.1', 'again']\n")
    assert ended.numbers() == [1, 2, 3]


def test_a_program_that_takes_the_place_of_a_script_gets_no_pipe(tmp_path: Path) -> None:
    text = """
        import os, sys
        told = "import os; print([name for name in os.environ if name.startswith('FARM_')])"
        os.execv(sys.executable, [sys.executable, "-c", told])
        """
    ended = run_script(write_script(tmp_path, text), last_mark=3)

    assert (ended.status, ended.output, ended.marks) == (0, "[]\n", [])


@pytest.mark.parametrize("action", ["SIG_DFL", "SIG_IGN"])
def test_a_reader_that_goes_away_ends_nothing(action: str, tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        f"""
        import signal, sys, benchfarm
        signal.signal(signal.SIGPIPE, signal.{action})
        benchfarm.step()
        sys.stdin.read()
        for _ in range(10):
            benchfarm.step()
        print("done", signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        """,
    )
    with started(script, last_mark=5) as running:
        os.read(running.read_end, 4096)
        os.close(running.read_end)
        running.process.communicate(timeout=60)
        assert (running.process.returncode, running.error()) == (0, "")
    assert (tmp_path / "stdout").read_text() == "done set()\n"


def test_a_file_of_the_scripts_own_never_gets_a_mark(tmp_path: Path) -> None:
    """Such as that of a daemon, which closes all that it has inherited."""
    script = write_script(
        tmp_path,
        """
        import os, benchfarm
        benchfarm.step()
        os.closerange(3, 100)
        files = [open("own%d" % n, "w") for n in range(20)]
        for _ in range(10):
            benchfarm.step()
        print("done")
        """.replace('"own%d"', f'"{tmp_path}/own%d"'),
    )
    ended = run_script(script, last_mark=5)

    assert ended.numbers() == [1]
    assert (ended.status, ended.output) == (0, "done\n")
    assert {file.stat().st_size for file in tmp_path.glob("own*")} == {0}


@pytest.mark.parametrize("runner", [[], ["-m", "benchfarm.run"]], ids=["python", "benchfarm.run"])
@pytest.mark.parametrize("variables", [{}, {"FARM_MARKS_FD": "99", "FARM_LAST_MARK": "2"}])
def test_outside_the_farm_a_step_does_nothing(
    runner: list[str], variables: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, *runner, write_script(tmp_path, LOOP)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_sigusr2_writes_the_stacks_of_all_threads(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        """
        import sys, threading, benchfarm
        def load_batches():
            sys.stdin.read()
        threading.Thread(target=load_batches).start()
        benchfarm.step()
        """,
    )
    with started(script) as running:
        os.read(running.read_end, 4096)
        running.process.send_signal(signal.SIGUSR2)
        deadline = time.monotonic() + 60
        while not ("load_batches" in running.error() and "MainThread" not in running.error()):
            assert time.monotonic() < deadline, running.error()
            assert running.process.poll() is None
        running.process.communicate(timeout=60)
        os.close(running.read_end)
        assert running.process.returncode == 0
        assert running.error().count("most recent call first") == 2


def test_keras_of_former_generations_is_watched_once(tmp_path: Path) -> None:
    """Keras 2, in the layout of its package `tf_keras`.

    A value that must be waited for is read at the first and the last mark, and seldom between.
    """
    package = tmp_path / "tf_keras"
    write_script(package, "from .src.callbacks import CallbackList", "callbacks.py")
    write_script(package, "", "__init__.py")
    write_script(package / "src", "", "__init__.py")
    write_script(
        package / "src",
        """
        class CallbackList:
            def on_train_batch_end(self, batch, logs=None):
                print("batch", batch)
            def on_epoch_begin(self, epoch, logs=None):
                pass
            on_epoch_end = on_epoch_begin
        """,
        "callbacks.py",
    )
    script = write_script(
        tmp_path,
        """
        import time, tf_keras.callbacks
        class OnDevice:
            def __float__(self):
                ready_s = time.monotonic() + 0.1
                while time.monotonic() < ready_s:
                    pass
                return 0.5
        for epoch in range(9):
            callbacks = tf_keras.callbacks.CallbackList()
            for batch in range(2):
                callbacks.on_train_batch_end(batch, {"loss": OnDevice(), "acc": 0.75})
            callbacks.on_epoch_end(epoch, {"loss": 0.5, "val_loss": 0.25, "val_acc": 0.75})
        """,
    )
    ended = run_script(script, last_mark=6)

    assert (ended.status, ended.output) == (0, "batch 0\nbatch 1\n" * 3)
    assert ended.numbers() == [1, 2, 3, 4, 5, 6]
    read = [mark["loss"] for mark in ended.marks]
    assert [read[0], read[1], read[5]] == [0.5, None, 0.5]
    epochs = [line["epoch"] for line in ended.reported if "epoch" in line]
    assert epochs == [{"loss": 0.5, "val_loss": 0.25, "accuracy": 0.75}] * 2

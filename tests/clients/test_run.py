"""`stagecoach run`: a server and a conversation in one command."""
import subprocess

from harness import DEMO_MODEL, STAGECOACH
from terminal import Terminal

QUESTION = "Which towns does the coach stop in?"
GREEDY = ["--temperature", "0", "--max-tokens", "24"]


def run(*arguments, stdin=subprocess.DEVNULL, text=None):
    source = {"input": text} if text is not None else {"stdin": stdin}
    done = subprocess.run([STAGECOACH, *arguments], capture_output=True, text=True, timeout=240, **source)
    assert done.returncode == 0, done.stderr
    return done.stdout


def asked(cluster, question):
    return run("generate", "--server", cluster.grpc, "--chat", question, *GREEDY)


def test_a_prompt_gets_one_answer(cluster):
    assert run("run", DEMO_MODEL, QUESTION, *GREEDY) == asked(cluster, QUESTION)


def test_piped_text_follows_the_prompt(cluster):
    assert run("run", DEMO_MODEL, "Answer this:", *GREEDY, text=QUESTION) == asked(cluster, f"Answer this:\n\n{QUESTION}")


def test_a_dash_reads_the_prompt_from_standard_input(cluster):
    assert run("run", DEMO_MODEL, "-", *GREEDY, text=QUESTION) == asked(cluster, QUESTION)


def test_no_prompt_but_an_empty_input_is_an_error():
    done = subprocess.run([STAGECOACH, "run", DEMO_MODEL, "-"], input=" \n", capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, "error: the prompt is empty\n")


def test_a_conversation_in_the_terminal(tmp_path):
    chat = Terminal(str(DEMO_MODEL), *GREEDY, command="run", XDG_STATE_HOME=str(tmp_path))
    assert f"starting {DEMO_MODEL} ..." in chat.start and "demo-model, context 2048 tokens" in chat.start
    chat.type(f"{QUESTION}\r")
    chat.read_until("tokens, ")
    chat.read_until("> ")
    chat.end()

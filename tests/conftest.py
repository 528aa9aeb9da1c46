import os

# gRPC's handlers for fork() abort a child now and then; ours only execute a program.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


def pytest_configure(config):
    config.addinivalue_line("markers", "alone: has limits of time, so tests/run.sh runs it with nothing beside it")
    config.addinivalue_line("markers", "long: repeats what another test shows, for more models, stages or faults; "
                                       "only `tests/run.sh long` runs it")

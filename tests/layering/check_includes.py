#!/usr/bin/env python3
"""Checks that #include arrows between the folders point one way.

usage: check_includes.py REPOSITORY
ALLOWED is the plan: for each folder, the folders that its files may include besides itself. Errors are: a folder that
is not listed, an include that no arrow allows, and a cycle in the plan itself.
"""
import pathlib
import re
import sys

ALLOWED = {
    "proto": [],
    "common": [],
    "common/config": ["common", "common/encoding", "proto"],
    "common/encoding": ["common"],
    "common/fd_store": ["common", "proto"],
    "common/flags": ["common", "common/config", "proto"],
    "common/flight": ["common"],
    "common/gguf": ["common", "common/encoding"],
    "common/metrics": ["common", "proto"],
    "common/model": ["common", "common/encoding", "common/gguf"],
    "common/redis": ["common"],
    "common/rpc": ["common", "common/flags", "common/text", "proto"],
    "common/text": ["common", "common/gguf"],
    "common/trace": ["common", "common/rpc", "proto"],
    "kernels": ["common", "common/model", "common/encoding"],
    "kernels/reference": ["kernels", "common", "common/encoding"],
    "kernels/cpu": ["kernels", "common", "common/model", "kernels/reference", "common/encoding"],
    "kernels/cuda": ["kernels", "common", "common/model", "common/encoding"],
    "worker/kv_store": ["common", "common/redis"],
    "worker/loader": ["common", "common/encoding", "common/model", "common/gguf"],
    "worker/model": ["worker/loader", "kernels", "common", "common/config", "common/encoding", "common/model", "proto"],
    "worker/kv_exchange": ["worker/kv_store", "worker/model", "kernels", "common", "proto"],
    "worker/transport": ["common", "common/rpc", "proto"],
    "worker/transport/nccl": ["worker/transport", "kernels", "kernels/cuda", "common"],
    "worker/stage": ["worker/kv_exchange", "worker/model", "worker/transport", "kernels", "common", "common/flight", "common/text",
                     "common/trace", "proto"],
    "worker/service": ["worker/stage", "worker/kv_exchange", "worker/kv_store", "worker/loader", "worker/model",
                       "worker/transport", "kernels", "common", "common/config", "common/fd_store", "common/rpc", "common/text", "proto"],
    "worker": ["worker/service", "worker/transport", "worker/transport/nccl", "kernels", "kernels/cpu", "kernels/cuda", "common",
               "common/fd_store", "common/flags", "common/flight", "common/metrics", "common/rpc", "common/trace"],
    "router/sizing": ["common", "common/model", "proto"],
    "router/scheduler": ["common", "common/flags", "common/trace", "proto"],
    "router/replicas": ["router/scheduler", "common"],
    "router/kv_events": ["router/scheduler", "common", "common/flags", "common/metrics"],
    "router/dispatch": ["router/scheduler", "router/sizing", "common", "common/config", "common/flags", "common/flight",
                        "common/metrics", "common/model", "common/rpc", "proto"],
    "router/text": ["router/access", "router/scheduler", "common", "common/model", "common/text", "proto"],
    "router/access": ["common", "common/flags"],
    "router/journal": ["common", "common/metrics", "common/redis", "proto"],
    "router/frontend": ["router/access", "router/journal", "router/text", "router/scheduler", "common", "common/flags", "common/rpc",
                        "common/text", "common/trace", "proto"],
    "router/frontend/http": ["router/access", "router/frontend", "router/journal", "router/text", "common", "common/flags",
                             "common/metrics", "common/text", "common/trace", "proto"],
    "router": ["router/access", "router/frontend", "router/frontend/http", "router/journal", "router/kv_events", "router/text",
               "router/replicas", "router/scheduler", "router/dispatch", "common", "common/config", "common/fd_store",
               "common/flags", "common/flight", "common/metrics", "common/model", "common/rpc", "common/trace", "proto"],
    "cli/launch": ["common", "common/fd_store", "common/flags"],
    "cli/check": ["router/sizing", "worker/model", "worker/loader", "kernels", "common", "common/config", "common/model",
                  "common/text", "common/encoding", "proto"],
    "cli/doctor": ["cli/check", "kernels/cpu", "common"],
    "cli/plan": ["cli/check", "router/sizing", "worker/model", "kernels/cuda", "common", "common/config", "common/model",
                 "proto"],
    "cli/quantize": ["cli/check", "worker/loader", "common", "common/encoding", "common/model"],
    "cli/kv": ["worker/kv_store", "common"],
    "cli/timeline": ["common", "common/flight"],
    "cli/bench": ["common", "common/rpc", "proto"],
    "cli/drill": ["cli/bench", "common", "proto"],
    "cli": ["cli/bench", "cli/check", "cli/doctor", "cli/drill", "cli/kv", "cli/launch", "cli/plan", "cli/quantize",
            "cli/timeline", "common",
            "common/config", "common/flags", "common/flight", "common/model", "common/rpc", "proto", "router/access",
            "worker/kv_store"],
}
# Tests may also use these fakes and seams of folders below them.
ALLOWED_IN_TESTS = {
    "worker/kv_exchange": ["kernels/reference"],
    "worker/model": ["kernels/reference"],
    "worker/transport/nccl": ["worker/transport/testing"],
    "worker/stage": ["kernels/reference", "worker/transport/testing"],
    "worker/service": ["kernels/reference"],
    "router/scheduler": ["router/scheduler/testing", "router/sizing"],
    "router/replicas": ["router/scheduler/testing"],
    "router/frontend": ["router/scheduler/testing"],
    "router/scheduler/testing": ["router/scheduler", "common", "proto"],
    "worker/transport/testing": ["worker/transport", "common"],
    "cli/check": ["kernels/cpu"],
    "cli/drill": ["common/rpc"],
    "cli/plan": ["cli/plan/testing", "common/encoding"],
    "cli/plan/testing": ["cli/check", "common", "common/encoding", "common/model"],
    "kernels/cuda": ["kernels/reference"],
}
SOURCES = {".h", ".cpp", ".cc", ".cu", ".cuh", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)
ROOTS = ("proto", "common", "kernels", "worker", "router", "cli")


def folder_of(path):
    """The listed folder that holds `path` (relative, posix): the deepest one."""
    listed = ALLOWED.keys() | ALLOWED_IN_TESTS.keys()
    folder = path.rsplit("/", 1)[0]
    while folder not in listed and "/" in folder:
        folder = folder.rsplit("/", 1)[0]
    return folder if folder in listed else None


def included_folder(include):
    if include.startswith(("stagecoach/v1/", "grpc/health/", "opentelemetry/proto/")):
        return "proto"
    return folder_of(include) if include.startswith(tuple(root + "/" for root in ROOTS)) else None


def check_file(path, text, used=None):
    here = folder_of(path)
    if here is None:
        return [f"{path}: no folder of the plan holds it; add the folder to {sys.argv[0]}"]
    is_test = path.endswith(("_test.cpp", "_bench.cpp", "_sim.cpp")) or "/testing/" in path
    allowed = set(ALLOWED.get(here, [])) | {here} | (set(ALLOWED_IN_TESTS.get(here, [])) if is_test else set())
    problems = []
    for include in INCLUDE.findall(text):
        there = included_folder(include)
        if used is not None and there:
            used.add((here, there, is_test))
        if there and there not in allowed:
            problems.append(f"{path}: includes {include}: no arrow from {here} to {there}")
    return problems


def unused(used):
    """Arrows of the plan that no include uses: the plan must not allow more than the code needs."""
    problems = []
    for here, folders in ALLOWED.items():
        problems += [f"the plan allows {here} -> {there}, which nothing includes" for there in folders
                     if (here, there, False) not in used]
    for here, folders in ALLOWED_IN_TESTS.items():
        problems += [f"the plan allows tests of {here} -> {there}, which none includes" for there in folders
                     if (here, there, True) not in used]
    return problems


def cycles(graph):
    done, path = set(), []

    def visit(node):
        if node in path:
            return [" -> ".join(path[path.index(node):] + [node])]
        if node in done:
            return []
        path.append(node)
        found = [cycle for next_node in graph.get(node, []) for cycle in visit(next_node)]
        path.pop()
        done.add(node)
        return found

    return [cycle for node in graph for cycle in visit(node)]


def self_test():
    """The check must find a reversed arrow, an include between router and worker, and a cycle."""
    assert check_file("router/scheduler/x.cpp", '#include "router/dispatch/pipeline_client.h"\n')
    assert check_file("router/text/x.h", '#include "worker/stage/step_meta.h"\n')
    assert check_file("common/x.cpp", '#include "common/rpc/status.h"\n')
    assert check_file("elsewhere/x.cpp", "")
    assert not check_file("router/scheduler/x.cpp", '#include "router/scheduler/stage_client.h"\n#include <vector>\n')
    assert not check_file("worker/stage/x.h", '#include "stagecoach/v1/step.pb.h"\n')
    assert cycles({"a": ["b"], "b": ["c"], "c": ["a"]}) == ["a -> b -> c -> a"]


def main(root):
    self_test()
    problems = [f"the plan itself has a cycle: {cycle}" for cycle in cycles(ALLOWED)]
    n_files = 0
    used = set()
    for top in ROOTS:
        for file in sorted((root / top).rglob("*")):
            if file.suffix in SOURCES and file.is_file():
                n_files += 1
                problems += check_file(file.relative_to(root).as_posix(), file.read_text(), used)
    problems += unused(used)
    print("\n".join(problems) or f"{n_files} files, every arrow points one way")
    return 1 if problems or not n_files else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))

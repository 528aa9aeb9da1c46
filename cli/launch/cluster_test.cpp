#include "cli/launch/cluster.h"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/match.h"

namespace stagecoach::launch {
namespace {

// A folder with shell scripts that replace the worker and the router. They append what they do to
// the file `log`. `hold` waits in the shell's `wait`, which no signal can miss; `read` would block
// if a signal came just before it. The process that `hold` waits for ends with the shell, however
// the shell ends.
class Programs {
 public:
  Programs() {
    char name[] = "/tmp/stagecoach-launch-XXXXXX";
    dir_ = mkdtemp(name);
  }
  ~Programs() { std::filesystem::remove_all(dir_); }

  void Write(const std::string& name, const std::string& script) const {
    const std::filesystem::path path = dir_ / name;
    std::ofstream(path)
        << "#!/bin/sh\ncd " << dir_.string() << "\n"
        << "say() { echo \"$*\" >>log; }\n"
        << "hold() { mkfifo $$; exec 3<>$$; cat <$$ >/dev/null 2>&1 3>&- & wait; }\n"
        << script << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  std::string Log() const {
    std::stringstream text;
    text << std::ifstream(dir_ / "log").rdbuf();
    return text.str();
  }
  pid_t PidIn(const std::string& file) const {
    pid_t pid = 0;
    std::ifstream(dir_ / file) >> pid;
    return pid;
  }
  ClusterOptions Options(uint32_t n_stages) const {
    ClusterOptions options;
    options.program_dir = dir_.string();
    options.model = "some/model";
    options.n_stages = n_stages;
    options.threads_per_worker = 3;
    options.echo_logs = false;
    return options;
  }

 private:
  std::filesystem::path dir_;
};

constexpr char kWorker[] =
    "trap 'say worker stops; exit 0' TERM; say worker $*; echo listening grpc=127.0.0.1:1; hold";
constexpr char kRouter[] =
    "trap 'say router stops; exit 0' TERM; say router $*;"
    "echo ready grpc=127.0.0.1:2 metrics=127.0.0.1:3 kv_blocks=4; hold";

TEST_CASE("Programs get their arguments and stop in order") {
  Programs programs;
  programs.Write("stagecoach-worker", kWorker);
  programs.Write("stagecoach-router", kRouter);
  ClusterOptions options = programs.Options(1);
  options.serve.load.config.set_max_sequences(5);
  Cluster cluster(options);
  const auto endpoints = cluster.Start();
  REQUIRE(endpoints.ok());
  CHECK(endpoints->grpc == "127.0.0.1:2");
  CHECK(endpoints->ready_line == "ready grpc=127.0.0.1:2 metrics=127.0.0.1:3 kv_blocks=4");
  cluster.RequestStop();
  CHECK(cluster.Wait().ok());
  const std::string of_all = "--log-level info --exit-with-parent " + std::to_string(getpid()) +
                             " --secret-file /dev/stdin";
  CHECK(programs.Log() == "worker --listen 127.0.0.1:0 --device cpu --threads 3 --memory-store 3 " +
                              of_all +
                              "\n"
                              "router --model some/model --stages 127.0.0.1:1 --max-sequences 5 " +
                              of_all +
                              "\n"
                              "router stops\n"
                              "worker stops\n");
}

TEST_CASE("Either all workers get --disturb, or none") {
  for (const uint64_t seed : {0u, 7u}) {
    Programs programs;
    programs.Write("stagecoach-worker", "say \"$*\"; echo listening grpc=127.0.0.1:1; hold");
    programs.Write("stagecoach-router", kRouter);
    ClusterOptions options = programs.Options(2);
    options.worker.disturbance_seed = seed;
    Cluster cluster(options);
    REQUIRE(cluster.Start().ok());
    std::istringstream log(programs.Log());
    int n_disturbed = 0;
    for (std::string line; std::getline(log, line);) {
      n_disturbed += line.find("--disturb 7") != std::string::npos ? 1 : 0;
    }
    CHECK(n_disturbed == (seed == 0 ? 0 : 2));
  }
}

TEST_CASE("Workers get flags of links only if there are links between GPUs") {
  for (const std::string device : {"cpu", "cuda"}) {
    Programs programs;
    programs.Write("stagecoach-worker", "say \"$*\"; echo listening grpc=127.0.0.1:1; hold");
    programs.Write("stagecoach-router", kRouter);
    ClusterOptions options = programs.Options(2);
    options.device = device;
    options.n_spares = 1;
    options.serve.recovery_limit = std::chrono::seconds(0);  // so that no spare starts
    options.serve.observation = {.flight_recorder = "off", .log_format = "json"};
    options.worker = {
        .batch_invariant = true,
        .transport = {.transport = "host", .nccl_settings = {"NCCL_A=1", "NCCL_B=2"}}};
    Cluster cluster(options);
    REQUIRE(cluster.Start().ok());
    const std::string of_links =
        " --transport host --nccl-setting NCCL_A=1 --nccl-setting NCCL_B=2 --reserve-memory "
        "2147483648";
    const std::string wanted = " --flight-recorder off --log-format json --batch-invariant" +
                               (device == "cuda" ? of_links : "") + " --log-level";
    std::istringstream log(programs.Log());
    int n_told = 0;
    for (std::string line; std::getline(log, line);) {
      n_told += line.find(wanted) != std::string::npos && !line.starts_with("router") ? 1 : 0;
    }
    INFO(programs.Log());
    CHECK(n_told == 2);
  }
}

TEST_CASE("Stages are spread over NUMA nodes if they divide evenly") {
  for (const uint32_t n_stages : {1u, 3u, 4u}) {
    Programs programs;
    programs.Write("stagecoach-worker",
                   "echo \"$*\" | grep -o -e '--numa-node [0-9]*' >>log; echo listening "
                   "grpc=127.0.0.1:1; hold");
    programs.Write("stagecoach-router", kRouter);
    ClusterOptions options = programs.Options(n_stages);
    options.numa_nodes = {0, 3};
    Cluster cluster(options);
    REQUIRE(cluster.Start().ok());
    std::istringstream log(programs.Log());
    std::vector<std::string> lines;
    for (std::string line; std::getline(log, line);) {
      if (line.starts_with("--numa-node")) lines.push_back(line);
    }
    std::sort(lines.begin(), lines.end());
    if (n_stages == 4) {
      CHECK(lines == std::vector<std::string>{"--numa-node 0", "--numa-node 0", "--numa-node 3",
                                              "--numa-node 3"});
    } else {
      CHECK(lines.empty());
    }
  }
}

TEST_CASE("Replicas have all stages, and their workers come one replica after the other") {
  Programs programs;
  programs.Write("stagecoach-worker", "say $4; echo listening grpc=127.0.0.1:${4#cuda:}; hold");
  programs.Write("stagecoach-router", kRouter);
  ClusterOptions options = programs.Options(2);
  options.device = "cuda";
  options.devices = {4, 5, 6, 7};
  options.serve.replicas = 2;
  {
    Cluster cluster(options);
    REQUIRE(cluster.Start().ok());
  }
  for (const char* gpu : {"cuda:4\n", "cuda:5\n", "cuda:6\n", "cuda:7\n"}) {
    CHECK(programs.Log().find(gpu) != std::string::npos);
  }
  CHECK(programs.Log().find("--stages 127.0.0.1:4,127.0.0.1:5,127.0.0.1:6,127.0.0.1:7 "
                            "--replicas 2 ") != std::string::npos);
  options.devices.pop_back();
  CHECK(Cluster(options).Start().status().message() ==
        "--devices names 3 GPUs for 2 replicas of 2 stages");
}

TEST_CASE("All programs of one start share a new secret, which no argument shows") {
  const auto secrets = [] {
    Programs programs;
    programs.Write("stagecoach-worker", "say secret=$(cat); echo listening grpc=127.0.0.1:1; hold");
    programs.Write("stagecoach-router", "say secret=$(cat); echo ready grpc=127.0.0.1:2; hold");
    Cluster cluster(programs.Options(2));
    REQUIRE(cluster.Start().ok());
    std::istringstream log(programs.Log());
    std::set<std::string> all;
    for (std::string line; std::getline(log, line);) {
      if (const size_t at = line.find("secret="); at != std::string::npos) {
        all.insert(line.substr(at));
      }
    }
    return all;
  };
  const std::set<std::string> first = secrets(), second = secrets();
  REQUIRE(first.size() == 1);
  REQUIRE(second.size() == 1);
  CHECK(first != second);
  CHECK(first.begin()->size() == std::string("secret=").size() + 64);
}

TEST_CASE("A missing program is reported as the only cause") {
  Programs programs;
  programs.Write("stagecoach-worker", kWorker);
  Cluster cluster(programs.Options(2));
  const absl::Status status = cluster.Start().status();
  CHECK(status.message().find("stagecoach-router: No such file") != std::string::npos);
}

TEST_CASE("A failed start is reported with the child's own error") {
  Programs programs;
  programs.Write("stagecoach-worker", kWorker);
  programs.Write("stagecoach-router", "echo 'error: config.json is not there' >&2; exit 1");
  Cluster cluster(programs.Options(2));
  CHECK(cluster.Start().status().message() == "router: config.json is not there");
}

TEST_CASE("A worker's death is the cause, even if the router dies first") {
  Programs programs;
  programs.Write("stagecoach-worker", "echo $$ >pid; echo listening grpc=127.0.0.1:1; hold");
  programs.Write("stagecoach-router",
                 "kill -9 $(cat pid); echo 'error: stage 0 was lost' >&2; exit 1");
  Cluster cluster(programs.Options(1));
  CHECK(cluster.Start().status().message() == "worker 0 was killed by signal 9 (Killed)");
}

TEST_CASE("If a program dies while serving, the whole cluster ends") {
  Programs programs;
  programs.Write("stagecoach-worker", kWorker);
  programs.Write("stagecoach-router", "echo ready grpc=127.0.0.1:2; echo last words >&2; exit 4");
  Cluster cluster(programs.Options(2));
  REQUIRE(cluster.Start().ok());
  CHECK(cluster.Wait().message() == "router exited with code 4; it last wrote:\n  last words");
}

// A worker whose second start ends the router, so that Wait returns.
constexpr char kReplacedOnce[] =
    "say worker; test -e begun && kill $(cat router); touch begun; echo $$ >worker;"
    "trap 'exit 0' TERM; echo listening grpc=127.0.0.1:1; hold";

TEST_CASE("A stalled worker is killed and replaced when nothing in the pipeline wants to run") {
  Programs programs;
  programs.Write("stagecoach-worker", kReplacedOnce);
  programs.Write("stagecoach-router",
                 "trap 'exit 0' TERM; echo $$ >router; echo ready grpc=127.0.0.1:2;"
                 "echo stalled 127.0.0.1:1; hold");
  Cluster cluster(programs.Options(1));
  REQUIRE(cluster.Start().ok());
  CHECK(absl::StartsWith(cluster.Wait().message(), "router exited with code 0"));
  CHECK(programs.Log() == "worker\nworker\n");
}

TEST_CASE("A stalled worker that was replaced already is not replaced again for the same stall") {
  Programs programs;
  programs.Write("stagecoach-worker",
                 "say worker; test -e begun && echo >again; touch begun;"
                 "trap 'exit 0' TERM; echo listening grpc=127.0.0.1:1; hold");
  programs.Write("stagecoach-router",
                 "mkfifo again; echo ready grpc=127.0.0.1:2; echo stalled 127.0.0.1:1;"
                 "read -r line <again; echo replace 127.0.0.1:1; exit 4");
  Cluster cluster(programs.Options(1));
  REQUIRE(cluster.Start().ok());
  CHECK(cluster.Wait().message() == "router exited with code 4");
  CHECK(programs.Log() == "worker\nworker\n");
}

TEST_CASE("A worker that ends in good order is replaced") {
  Programs programs;
  programs.Write("stagecoach-worker", kReplacedOnce);
  programs.Write("stagecoach-router",
                 "trap 'exit 0' TERM; echo $$ >router; echo ready grpc=127.0.0.1:2; hold");
  Cluster cluster(programs.Options(1));
  REQUIRE(cluster.Start().ok());
  REQUIRE(kill(programs.PidIn("worker"), SIGTERM) == 0);
  CHECK(absl::StartsWith(cluster.Wait().message(), "router exited with code 0"));
  CHECK(programs.Log() == "worker\nworker\n");
}

TEST_CASE("With a journal, a killed router is replaced at the same addresses") {
  Programs programs;
  programs.Write("stagecoach-worker", kWorker);
  programs.Write("stagecoach-router",
                 "say router $*; say journal $STAGECOACH_JOURNAL; [ -e killed ] && exit 4; >killed;"
                 "echo ready grpc=127.0.0.1:2 metrics=127.0.0.1:3; kill -9 $$");
  ClusterOptions options = programs.Options(1);
  options.serve.journal.place = "folder";
  Cluster cluster(options);
  REQUIRE(cluster.Start().ok());
  CHECK(cluster.Wait().message() == "router exited with code 4");
  CHECK(programs.Log().find("router --model some/model --stages 127.0.0.1:1 --grpc 127.0.0.1:2 "
                            "--metrics 127.0.0.1:3 --log-level") != std::string::npos);
  CHECK(programs.Log().find("journal folder\n") != std::string::npos);
}

TEST_CASE("A stop during startup ends the startup") {
  Programs programs;
  programs.Write("stagecoach-worker", "hold");
  Cluster cluster(programs.Options(2));
  cluster.RequestStop();
  CHECK(absl::IsCancelled(cluster.Start().status()));
}

TEST_CASE("A requested signal reaches the process of its stage only") {
  Programs programs;
  programs.Write("stagecoach-worker", kWorker);
  programs.Write("stagecoach-router", kRouter);
  Cluster cluster(programs.Options(2));
  REQUIRE(cluster.Start().ok());
  cluster.RequestSignal(1, SIGKILL);
  cluster.RequestStop();
  CHECK(cluster.Wait().message() == "worker 1 was killed by signal 9 (Killed)");
}

TEST_CASE("A second stop does not wait for the router") {
  Programs programs;
  programs.Write("stagecoach-worker", kWorker);
  programs.Write("stagecoach-router", "trap '' TERM; echo ready grpc=127.0.0.1:2; hold");
  Cluster cluster(programs.Options(1));
  REQUIRE(cluster.Start().ok());
  cluster.RequestStop();
  cluster.RequestStop();
  CHECK(absl::IsCancelled(cluster.Wait()));
}

}  // namespace
}  // namespace stagecoach::launch

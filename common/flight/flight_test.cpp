#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "common/check.h"
#include "common/flight/flight_file.h"
#include "common/flight/flight_recorder.h"
#include "common/temp_dir.h"

namespace stagecoach {
namespace {

using Clock = FlightRecorder::Clock;

std::string Written(FlightRecorder& recorder) {
  const TempDir folder;
  const std::string path = folder.File("file");
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  REQUIRE(file != nullptr);
  REQUIRE(recorder.Write(fileno(file), SIGUSR1));
  std::fclose(file);
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_CASE("recorded steps are read back with times of day") {
  FlightRecorder recorder(FlightRole::kStage);
  recorder.SetStage(1, 3);
  const auto began = std::chrono::system_clock::now().time_since_epoch();
  const Clock::time_point now = Clock::now();
  recorder.Begin(7, 1, 100, 0, now);
  recorder.Mark(1, FlightTime::kBegan, now + std::chrono::microseconds(5));
  recorder.Mark(1, FlightTime::kSent, now + std::chrono::microseconds(9));
  recorder.Begin(7, 2, 0, 3, now);
  const auto log = ParseFlight(Written(recorder));
  REQUIRE(log.ok());
  CHECK(log->role == FlightRole::kStage);
  CHECK(log->stage == 1);
  CHECK(log->n_stages == 3);
  CHECK(log->pid == static_cast<uint64_t>(getpid()));
  CHECK(log->signal == SIGUSR1);
  CHECK_FALSE(log->host.empty());
  REQUIRE(log->steps.size() == 2);
  const FlightStep& first = log->steps[0];
  CHECK(first.epoch == 7);
  CHECK(first.n_prefill_tokens == 100);
  CHECK(first.n_decode_tokens == 0);
  CHECK(first.at(FlightTime::kBegan) - first.at(FlightTime::kKnown) == 5000);
  CHECK(first.at(FlightTime::kSent) - first.at(FlightTime::kKnown) == 9000);
  CHECK(first.at(FlightTime::kComputed) == 0);
  const int64_t began_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(began).count();
  CHECK(std::abs(first.at(FlightTime::kKnown) - began_ns) < int64_t{60'000'000'000});
  CHECK(log->steps[1].n_decode_tokens == 3);
}

TEST_CASE("the ring keeps the last steps and ignores marks for overwritten ones") {
  FlightRecorder recorder(FlightRole::kRouter);
  const uint64_t n_steps = kFlightRecords + 10;
  for (uint64_t step = 1; step <= n_steps; ++step) recorder.Begin(1, step, 0, 1, Clock::now());
  recorder.Mark(3, FlightTime::kSent);
  const auto log = ParseFlight(Written(recorder));
  REQUIRE(log.ok());
  REQUIRE(log->steps.size() == kFlightRecords);
  CHECK(log->steps.front().step == 11);
  CHECK(log->steps.back().step == n_steps);
  for (const FlightStep& step : log->steps) CHECK(step.at(FlightTime::kSent) == 0);
}

TEST_CASE("a file that is written during steps contains only complete records") {
  FlightRecorder recorder(FlightRole::kRouter);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (uint64_t step = 1; !stop; ++step) {
      const Clock::time_point time{std::chrono::nanoseconds(step)};
      recorder.Begin(step, step, static_cast<uint32_t>(step), 0, time);
      recorder.Mark(step, FlightTime::kSent, time);
    }
  });
  for (int i = 0; i < 20; ++i) {
    const auto log = ParseFlight(Written(recorder));
    REQUIRE(log.ok());
    for (const FlightStep& step : log->steps) {
      CHECK(step.epoch == step.step);
      CHECK(step.n_prefill_tokens == static_cast<uint32_t>(step.step));
    }
  }
  stop = true;
  writer.join();
}

TEST_CASE("truncated, padded and foreign files are refused") {
  FlightRecorder recorder(FlightRole::kRouter);
  const std::string bytes = Written(recorder);
  CHECK(ParseFlight(bytes).ok());
  CHECK_FALSE(ParseFlight("").ok());
  CHECK_FALSE(ParseFlight(bytes.substr(0, bytes.size() - 1)).ok());
  CHECK_FALSE(ParseFlight(bytes + "x").ok());
  CHECK_FALSE(ParseFlight("{" + bytes.substr(1)).ok());
  CHECK(absl::IsNotFound(ReadFlightFile("/no/such/file").status()));
}

// Runs `fault` in a child process with a recorder. Returns the wait status.
template <typename Fault>
int Run(const std::string& folder, const Fault& fault) {
  const pid_t child = fork();
  if (child == 0) {
    std::freopen("/dev/null", "w", stderr);
    // Remove Catch2's handlers.
    for (const int signal : {SIGABRT, SIGILL, SIGSEGV}) std::signal(signal, SIG_DFL);
    FlightRecorder recorder(FlightRole::kStage);
    recorder.Begin(1, 1, 5, 0, Clock::now());
    if (!WriteFlightOnSignals(&recorder, folder, "test").ok()) _exit(9);
    fault();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

std::vector<FlightLog> LogsIn(const std::filesystem::path& folder) {
  std::vector<FlightLog> logs;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto log = ReadFlightFile(entry.path());
    REQUIRE(log.ok());
    logs.push_back(*log);
  }
  return logs;
}

TEST_CASE("a crashing process writes its last steps and still dies of the same signal") {
  const TempDir folder;
  int signal = SIGABRT;
  SECTION("a failed invariant check") {
    CHECK(WTERMSIG(Run(folder.path(), [] { SC_CHECK(1 + 1 == 3); })) == SIGABRT);
  }
  SECTION("a signal from another process") {
    CHECK(WTERMSIG(Run(folder.path(), [] { kill(getpid(), SIGABRT); })) == SIGABRT);
  }
  SECTION("an illegal instruction") {
    signal = SIGILL;
    CHECK(WTERMSIG(Run(folder.path(), [] { __builtin_trap(); })) == SIGILL);
  }
  const std::vector<FlightLog> logs = LogsIn(folder.path());
  REQUIRE(logs.size() == 1);
  CHECK(logs[0].signal == signal);
  REQUIRE(logs[0].steps.size() == 1);
  CHECK(logs[0].steps[0].n_prefill_tokens == 5);
}

TEST_CASE("SIGUSR1 writes a file each time, and the process continues") {
  const TempDir folder;
  const int status = Run(folder.path(), [] {
    raise(SIGUSR1);
    raise(SIGUSR1);
  });
  CHECK(WIFEXITED(status));
  CHECK(LogsIn(folder.path()).size() == 2);
}

TEST_CASE("'off' writes no files and ignores SIGUSR1; a missing folder is refused") {
  const int status = Run("off", [] { raise(SIGUSR1); });
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(WEXITSTATUS(Run("/no/such/folder", [] {})) == 9);
}

}  // namespace
}  // namespace stagecoach

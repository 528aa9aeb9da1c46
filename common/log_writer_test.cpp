#include "common/log_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <string>

namespace stagecoach {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A pipe that holds about `bytes`; the kernel rounds the size up.
struct Pipe {
  int read_fd = -1, write_fd = -1;
  explicit Pipe(int bytes) {
    int fds[2];
    REQUIRE(pipe(fds) == 0);
    read_fd = fds[0];
    write_fd = fds[1];
    fcntl(write_fd, F_SETPIPE_SZ, bytes);
  }
  ~Pipe() {
    close(read_fd);
    close(write_fd);
  }
  // Reads until a text that ends in `end` has arrived.
  std::string ReadUntil(const std::string& end) const {
    std::string text;
    char buffer[4096];
    while (!text.ends_with(end)) {
      const ssize_t n = read(read_fd, buffer, sizeof(buffer));
      REQUIRE(n > 0);
      text.append(buffer, static_cast<size_t>(n));
    }
    return text;
  }
};

TEST_CASE("the writer keeps the order of texts") {
  const Pipe pipe(1 << 16);
  auto* const writer = new LogWriter(pipe.write_fd, 1 << 16);
  for (int i = 0; i < 100; ++i) writer->Write(std::to_string(i) + "\n");
  CHECK(writer->Flush(seconds(60)));
  std::string wanted;
  for (int i = 0; i < 100; ++i) wanted += std::to_string(i) + "\n";
  CHECK(pipe.ReadUntil("\n99\n") == wanted);
}

TEST_CASE("a pipe without a reader blocks nobody, and the number of lost texts is reported") {
  const Pipe pipe(4096);
  auto* const writer = new LogWriter(pipe.write_fd, 10'000);
  const std::string line = std::string(99, 'x') + "\n";
  constexpr int kLines = 1000;
  for (int i = 0; i < kLines; ++i) writer->Write(line);
  CHECK_FALSE(writer->Flush(milliseconds(1)));
  writer->Write("last\n");
  const std::string text = pipe.ReadUntil("last\n");
  // A slow writer reports losses more than once.
  int n_lost = 0;
  for (size_t at = text.find(" log lines are lost"); at != std::string::npos;
       at = text.find(" log lines are lost", at + 1)) {
    const size_t begin = at == 0 ? 0 : text.rfind('\n', at) + 1;
    n_lost += std::stoi(text.substr(begin, at - begin));
  }
  CHECK(n_lost > 0);
  int n_seen = 0;
  for (size_t at = text.find(line); at != std::string::npos; at = text.find(line, at + 1)) ++n_seen;
  CHECK(n_seen + n_lost == kLines);
  CHECK(writer->Flush(seconds(60)));
}

TEST_CASE("a closed reader blocks nobody") {
  Pipe pipe(4096);
  close(pipe.read_fd);
  pipe.read_fd = -1;
  signal(SIGPIPE, SIG_IGN);
  auto* const writer = new LogWriter(pipe.write_fd, 10'000);
  writer->Write("to nobody\n");
  CHECK(writer->Flush(seconds(60)));
}

}  // namespace
}  // namespace stagecoach

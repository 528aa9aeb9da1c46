#include "common/mapped_file.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/temp_dir.h"

namespace stagecoach {
namespace {

// Runs `what` in a child. Returns how the child ends and what it writes to standard error.
template <typename What>
std::pair<int, std::string> InChild(const What& what) {
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(fds[1], STDERR_FILENO);
    what();
    std::_Exit(0);
  }
  close(fds[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(fds[0], buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  close(fds[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), text};
}

TEST_CASE("if a mapped file is truncated, the process ends with the file's name") {
  const TempDir dir;
  const std::string path = dir.File("weights.bin");
  std::ofstream(path) << std::string(1 << 16, 'x');
  const auto [code, text] = InChild([&] {
    const auto file = MappedFile::Open(path);
    std::filesystem::resize_file(path, 100);
    const volatile auto byte = (*file)->bytes()[40'000];
    static_cast<void>(byte);
  });
  CHECK(code == 1);
  CHECK(text == "error: " + path + ": was cut short, or its disk failed, while it was read\n");
}

TEST_CASE("the file that is being read is known by its name") {
  const TempDir dir;
  const std::string a = dir.File("a"), b = dir.File("b");
  std::ofstream(a) << "aaaa";
  std::ofstream(b) << "bbbb";
  const auto file_a = MappedFile::Open(a), file_b = MappedFile::Open(b);
  REQUIRE(file_b.ok());
  CHECK(FileBeingRead() == b);
  CHECK((*file_a)->bytes().size() == 4);
  CHECK(FileBeingRead() == a);
}

}  // namespace
}  // namespace stagecoach

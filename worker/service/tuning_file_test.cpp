#include "worker/service/tuning_file.h"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "common/temp_dir.h"
#include "kernels/reference/reference_ops.h"

namespace stagecoach::worker {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_CASE("Tuning file: the next process reads what this one wrote") {
  const TempDir dir;
  const std::unique_ptr<kernels::Ops> ops = kernels::MakeReferenceOps();
  const std::string tuning("a\0b\n", 4);
  const TuningFile file(dir.File("new/folder"), *ops);
  CHECK(absl::IsNotFound(file.Read().status()));
  REQUIRE(file.Write(tuning).ok());
  CHECK(TuningFile(dir.File("new/folder"), *ops).Read().value_or("") == tuning);
  REQUIRE(file.Write("c").ok());
  CHECK(file.Read().value_or("") == "c");
  REQUIRE(file.Write("").ok());
  CHECK(file.Read().value_or("?").empty());
  // Nothing is left over beside the file.
  CHECK(std::distance(std::filesystem::directory_iterator(dir.File("new/folder")), {}) == 1);
}

TEST_CASE("Tuning file: equal content is not written again") {
  const TempDir dir;
  const std::unique_ptr<kernels::Ops> ops = kernels::MakeReferenceOps();
  const TuningFile file(dir.path(), *ops);
  const auto inode = [&] {
    struct stat info{};
    REQUIRE(stat(file.path().c_str(), &info) == 0);
    return info.st_ino;
  };
  REQUIRE(file.Write("a").ok());
  const ino_t before = inode();
  REQUIRE(file.Write("a").ok());
  CHECK(inode() == before);
}

TEST_CASE("Tuning file: a damaged file is not used, and is replaced") {
  const TempDir dir;
  const std::unique_ptr<kernels::Ops> ops = kernels::MakeReferenceOps();
  const TuningFile file(dir.path(), *ops);
  REQUIRE(file.Write("tuning").ok());
  const std::string good = ReadAll(file.path());
  const std::string name = std::filesystem::path(file.path()).filename();
  for (size_t n = 0; n < good.size(); ++n) {
    dir.Write(name, good.substr(0, n));
    REQUIRE(absl::IsDataLoss(file.Read().status()));
    std::string changed = good;
    changed[n] = static_cast<char>(changed[n] ^ 1);
    dir.Write(name, changed);
    REQUIRE(absl::IsDataLoss(file.Read().status()));
  }
  REQUIRE(file.Write("tuning").ok());
  CHECK(ReadAll(file.path()) == good);
}

TEST_CASE("Tuning file: a folder that cannot be made is an error") {
  const std::unique_ptr<kernels::Ops> ops = kernels::MakeReferenceOps();
  const TuningFile file("/dev/null/folder", *ops);
  CHECK(absl::IsNotFound(file.Read().status()));
  CHECK_FALSE(file.Write("a").ok());
}

}  // namespace
}  // namespace stagecoach::worker

#include "router/journal/journal_file.h"

#include <sys/stat.h>

#include <fstream>

#include "catch2/catch_test_macros.hpp"
#include "common/temp_dir.h"

namespace stagecoach::router {
namespace {

TEST_CASE("only the owner can read the journal") {
  const TempDir dir;
  const std::string folder = dir.File("new");
  REQUIRE(JournalFile::Open(folder).ok());
  struct stat of_file, of_folder;
  REQUIRE(stat(JournalFile::PathIn(folder).c_str(), &of_file) == 0);
  REQUIRE(stat(folder.c_str(), &of_folder) == 0);
  CHECK((of_file.st_mode & 0777) == 0600);
  CHECK((of_folder.st_mode & 0777) == 0700);
}

TEST_CASE("errors tell a lock, damage and a wrong path apart") {
  const TempDir dir;
  const std::string folder = dir.path();
  auto first = JournalFile::Open(folder);
  REQUIRE(first.ok());
  CHECK(JournalFile::Open(folder).status().code() == absl::StatusCode::kFailedPrecondition);
  first->reset();
  std::ofstream(JournalFile::PathIn(folder)) << std::string(5000, 'x');
  CHECK(JournalFile::Open(folder).status().code() == absl::StatusCode::kDataLoss);
  JournalFile::Remove(folder);
  CHECK(JournalFile::Open(folder).ok());
  CHECK(JournalFile::Open("/dev/null/journal").status().code() ==
        absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace stagecoach::router

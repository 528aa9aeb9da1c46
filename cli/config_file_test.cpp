#include "cli/config_file.h"

#include <catch2/catch_test_macros.hpp>
#include <fstream>

#include "common/temp_dir.h"

namespace stagecoach::cli {
namespace {

absl::StatusOr<ConfigFile> Read(const std::string& text) {
  const TempDir folder;
  std::ofstream(folder.File("config.toml")) << text;
  return ReadConfigFile(folder.File("config.toml"));
}

TEST_CASE("sections, keys and values of every kind are read, with their lines") {
  const absl::StatusOr<ConfigFile> file = Read(
      "server = 'a:1'\n"
      "[serve]\n"
      "stages = 2\n"
      "memory-fraction = 0.5\n"
      "prefix-cache = false\n"
      "cors = ['https://a', 'https://b']\n"
      "[bench.serve]\n"
      "concurrency = 8\n");
  REQUIRE(file.ok());
  REQUIRE(file->entries.size() == 6);
  for (const ConfigEntry& entry : file->entries) {
    if (entry.key == "server") CHECK(entry.section.empty());
    if (entry.key == "stages") CHECK((entry.values == std::vector<std::string>{"2"}));
    if (entry.key == "stages") CHECK(file->PlaceOf(entry).ends_with("config.toml:3"));
    if (entry.key == "memory-fraction") CHECK((entry.values == std::vector<std::string>{"0.5"}));
    if (entry.key == "prefix-cache") CHECK(entry.is_bool);
    if (entry.key == "cors") CHECK(entry.values.size() == 2);
    if (entry.key == "concurrency") {
      CHECK((entry.section == std::vector<std::string>{"bench", "serve"}));
    }
  }
}

TEST_CASE("what is no TOML, or no value of a flag, is refused by its line") {
  CHECK(std::string(Read("[serve]\nstages 2\n").status().message()).find("toml:2: ") !=
        std::string::npos);
  CHECK(std::string(Read("[serve]\n\ndate = 2026-01-01\n").status().message())
            .find("toml:3: date: give text") != std::string::npos);
  CHECK(absl::IsNotFound(ReadConfigFile("/no/such/file").status()));
}

}  // namespace
}  // namespace stagecoach::cli

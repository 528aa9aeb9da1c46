#include <stdlib.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/model/model_spec.h"
#include "common/temp_dir.h"

namespace stagecoach {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("an existing folder is used as it is") {
  TempDir dir;
  CHECK(*ResolveModelDir(dir.path()) == dir.path());
}

TEST_CASE("for a file that is not a model, the error says what it is") {
  TempDir dir;
  dir.Write("other.txt", "x");
  const auto message = [&](const std::string& model) {
    const absl::Status status = ResolveModelDir(model).status();
    CHECK(absl::IsInvalidArgument(status));
    return std::string(status.message());
  };
  CHECK_THAT(message(dir.File("other.txt")), ContainsSubstring("not a GGUF file"));
  dir.Write("config.json", "{}");
  CHECK_THAT(message(dir.File("config.json")),
             ContainsSubstring("a file inside a model's folder; give the folder: " + dir.path()));
}

TEST_CASE("a path that cannot be a hub name gets no advice to download") {
  const std::string message(ResolveModelDir("/no/such/folder").status().message());
  CHECK(message.find("hf download") == std::string::npos);
  CHECK_THAT(message, ContainsSubstring("no such folder or file"));
}

TEST_CASE("org/name is found in the cache") {
  TempDir cache;
  setenv("HF_HUB_CACHE", cache.path().c_str(), 1);
  const std::string repo = "models--acme--tiny-1.0/";
  cache.Write(repo + "snapshots/abc123/config.json", "{}");
  cache.Write(repo + "refs/main", "abc123\n");
  auto dir = ResolveModelDir("acme/tiny-1.0");
  REQUIRE(dir.ok());
  CHECK(*dir == cache.File(repo + "snapshots/abc123"));

  cache.Write(repo + "refs/main", "other");
  CHECK_THAT(std::string(ResolveModelDir("acme/tiny-1.0").status().message()),
             ContainsSubstring("no complete download"));
  cache.Write(repo + "refs/main", "../../..");
  CHECK(absl::IsNotFound(ResolveModelDir("acme/tiny-1.0").status()));

  const absl::Status status = ResolveModelDir("acme/absent").status();
  CHECK(absl::IsNotFound(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring(cache.File("models--acme--absent")));
  CHECK(absl::IsNotFound(ResolveModelDir("/no/such/folder").status()));
  CHECK(absl::IsNotFound(ResolveModelDir("../x").status()));
  unsetenv("HF_HUB_CACHE");
}

}  // namespace
}  // namespace stagecoach

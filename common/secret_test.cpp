#include "common/secret.h"

#include <catch2/catch_test_macros.hpp>
#include <fstream>

#include "common/temp_dir.h"

namespace stagecoach {
namespace {

TEST_CASE("a secret is read exactly, with any line ending") {
  const TempDir dir;
  const std::string path = dir.File("secret");
  const auto read = [&](const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
    return ReadSecret(path);
  };
  const std::string secret = MakeSecret();
  CHECK(secret.size() == 64);
  CHECK(secret != MakeSecret());
  for (const char* end : {"", "\n", "\r\n", "\nanother line\n"})
    CHECK(*read(secret + end) == secret);
  for (const std::string& text :
       {std::string(), std::string("short\n"), std::string(300, 'a'), secret + " with spaces"}) {
    const absl::Status status = read(text).status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK(status.message().find("openssl rand -hex 32") != std::string::npos);
  }
  CHECK(ReadSecret(dir.File("none")).status().message().find("No such file") != std::string::npos);
}

TEST_CASE("secrets are compared to the last character") {
  CHECK(SameSecret("abc", "abc"));
  CHECK_FALSE(SameSecret("abc", "abd"));
  CHECK_FALSE(SameSecret("abc", "ab"));
  CHECK_FALSE(SameSecret("abc", ""));
}

}  // namespace
}  // namespace stagecoach

#include "common/secret.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "common/check.h"

namespace stagecoach {
namespace {

constexpr size_t kMinBytes = 32;
constexpr size_t kMaxBytes = 256;

}  // namespace

std::string MakeSecret() {
  std::array<unsigned char, 32> bytes{};
  SC_CHECK(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  std::string secret;
  for (const unsigned char byte : bytes) secret += fmt::format("{:02x}", byte);
  return secret;
}

absl::StatusOr<std::string> ReadSecret(const std::string& path) {
  std::ifstream file(path);
  std::string secret;
  if (!std::getline(file, secret) && !file.eof()) {
    return absl::InvalidArgumentError(
        fmt::format("--secret-file {}: cannot be read: {}", path, std::strerror(errno)));
  }
  if (secret.ends_with('\r')) secret.pop_back();
  const bool printable =
      std::all_of(secret.begin(), secret.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (secret.size() < kMinBytes || secret.size() > kMaxBytes || !printable) {
    return absl::InvalidArgumentError(
        fmt::format("--secret-file {}: its first line is not {} to {} printable characters without "
                    "spaces; make one with: openssl rand -hex 32",
                    path, kMinBytes, kMaxBytes));
  }
  return secret;
}

bool SameSecret(std::string_view secret, std::string_view given) {
  if (secret.size() != given.size()) return false;
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < secret.size(); ++i) {
    difference = difference | static_cast<unsigned char>(secret[i] ^ given[i]);
  }
  return difference == 0;
}

}  // namespace stagecoach

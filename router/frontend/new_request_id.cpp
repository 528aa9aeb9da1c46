#include "router/frontend/new_request_id.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <random>

namespace stagecoach::router {
namespace {

constexpr size_t kInstanceDigits = 8, kRandomDigits = 24;

uint64_t Random() {
  thread_local std::mt19937_64 generator([] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }());
  return generator();
}

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return ('0' <= c && c <= '9') || ('a' <= c && c <= 'f'); });
}

std::string& OwnId() {
  static std::string id = fmt::format("{:08x}", static_cast<uint32_t>(Random()));
  return id;
}

}  // namespace

const std::string& InstanceId() { return OwnId(); }

void SetInstanceId(const std::string& id) { OwnId() = id; }

std::string NewRequestId() {
  return fmt::format("{}-{:08x}{:016x}", InstanceId(), static_cast<uint32_t>(Random()), Random());
}

bool IsOfAnotherInstance(std::string_view id) {
  return id.size() == kInstanceDigits + 1 + kRandomDigits && id[kInstanceDigits] == '-' &&
         IsHex(id.substr(0, kInstanceDigits)) && IsHex(id.substr(kInstanceDigits + 1)) &&
         !id.starts_with(InstanceId());
}

}  // namespace stagecoach::router

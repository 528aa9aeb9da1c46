#include "router/kv_events/replay_buffer.h"

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router {
namespace {

std::vector<uint64_t> Numbers(const ReplayBuffer& buffer, uint64_t first) {
  std::vector<uint64_t> numbers;
  for (const auto& entry : buffer.From(first)) numbers.push_back(entry.sequence);
  return numbers;
}

TEST_CASE("A replay buffer keeps the last payloads, as many as fit") {
  ReplayBuffer buffer(/*max_payloads=*/3, /*max_bytes=*/100);
  CHECK(buffer.From(0).empty());
  for (uint64_t i = 0; i < 5; ++i) {
    buffer.Add(i, std::make_shared<std::string>(std::to_string(i)));
  }
  CHECK(Numbers(buffer, 0) == std::vector<uint64_t>{2, 3, 4});
  CHECK(Numbers(buffer, 4) == std::vector<uint64_t>{4});
  CHECK(*buffer.From(4).front().payload == "4");
  CHECK(Numbers(buffer, 5).empty());
  buffer.Add(5, std::make_shared<std::string>(99, 'x'));
  CHECK(Numbers(buffer, 0) == std::vector<uint64_t>{4, 5});
  buffer.Add(6, std::make_shared<std::string>(101, 'x'));
  CHECK(Numbers(buffer, 0) == std::vector<uint64_t>{6});
  buffer.Add(7, std::make_shared<std::string>("x"));
  CHECK(Numbers(buffer, 0) == std::vector<uint64_t>{7});
}

}  // namespace
}  // namespace stagecoach::router

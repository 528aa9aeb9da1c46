#include "worker/transport/nccl/link_offer.h"

#include <catch2/catch_test_macros.hpp>
#include <cstring>

namespace stagecoach::worker {
namespace {

LinkTerms Terms() {
  LinkTerms terms{.epoch = 5, .nccl_version = 22809, .host = "node-1", .ids = {{}, {}}};
  std::memset(terms.ids[1].bytes, 7, sizeof(terms.ids[1].bytes));
  return terms;
}

}  // namespace

TEST_CASE("link offer: terms are read back") {
  const auto terms = DecodeLinkTerms(EncodeLinkTerms(Terms()), 5, 22809, 2);
  REQUIRE(terms.ok());
  CHECK(terms->host == "node-1");
  CHECK(std::memcmp(terms->ids[1].bytes, Terms().ids[1].bytes, 128) == 0);
  CHECK(DecodeLinkTerms(EncodeLinkTerms(Terms()), 5, 22803, 2).ok());
}

TEST_CASE("link offer: terms that do not match are refused before NCCL would wait") {
  const std::string bytes = EncodeLinkTerms(Terms());
  using absl::StatusCode;
  CHECK(DecodeLinkTerms(bytes, 6, 22809, 2).status().code() == StatusCode::kFailedPrecondition);
  CHECK(DecodeLinkTerms(bytes, 5, 22700, 2).status().code() == StatusCode::kFailedPrecondition);
  CHECK(DecodeLinkTerms(bytes, 5, 22809, 1).status().code() == StatusCode::kInvalidArgument);
  CHECK(DecodeLinkTerms("", 5, 22809, 2).status().code() == StatusCode::kInvalidArgument);
  for (size_t n = 0; n < bytes.size(); n += 13) {
    CHECK_FALSE(DecodeLinkTerms(bytes.substr(0, n), 5, 22809, 2).ok());
  }
}

}  // namespace stagecoach::worker

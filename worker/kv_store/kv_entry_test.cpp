#include "worker/kv_store/kv_entry.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <numeric>
#include <string>

namespace stagecoach::worker {
namespace {

using Tokens = std::array<int32_t, kKvBlockTokens>;

const KvKey kKey{.block = {0, 1, 2, 255}, .layer = 300};

Tokens SomeTokens() {
  Tokens tokens;
  std::iota(tokens.begin(), tokens.end(), 70'000);
  tokens[3] = -1;
  return tokens;
}

absl::StatusCode CodeOf(std::string_view entry, const KvKey& key = kKey,
                        const Tokens& tokens = SomeTokens()) {
  // A copy of exactly these bytes: the address sanitizer sees a read outside of them.
  const std::unique_ptr<char[]> bytes(new char[entry.size()]);
  entry.copy(bytes.get(), entry.size());
  const absl::Status status = DecodeKvEntry({bytes.get(), entry.size()}, key, tokens).status();
  const absl::Status of_any_key = KeyOfKvEntry({bytes.get(), entry.size()}).status();
  CHECK((of_any_key == status || of_any_key.ok()));
  return status.code();
}

TEST_CASE("an entry gives its payload back") {
  for (const size_t n_bytes : {0, 1, 100'000}) {
    CAPTURE(n_bytes);
    const std::string payload(n_bytes, '\xab');
    const std::string entry = EncodeKvEntry(kKey, SomeTokens(), payload);
    CHECK(entry.size() == kKvEntryHeaderBytes + n_bytes);
    const auto decoded = DecodeKvEntry(entry, kKey, SomeTokens());
    REQUIRE(decoded.ok());
    CHECK(*decoded == payload);
    CHECK(*KeyOfKvEntry(entry) == kKey);
    CHECK(decoded->data() == entry.data() + kKvEntryHeaderBytes);
    const std::string shifted = "x" + entry;
    CHECK(DecodeKvEntry(std::string_view(shifted).substr(1), kKey, SomeTokens()).ok());
  }
}

TEST_CASE("the bytes of an entry are those of version 1") {
  const std::string entry = EncodeKvEntry(kKey, SomeTokens(), "payload");
  CHECK(entry.starts_with(std::string("SCKV\1\0\0\0\x70\0\0\0\x10\0\0\0\0\1\2\xff", 20)));
  CHECK(entry.substr(96, 12) == std::string("\7\0\0\0\0\0\0\0\x2c\1\0\0", 12));
  CHECK(entry.substr(108, 4) == std::string("\xba\x86\x5e\x1c", 4));
  CHECK(entry.ends_with("payload"));
}

TEST_CASE("an entry that ends early or late is refused") {
  const std::string entry = EncodeKvEntry(kKey, SomeTokens(), "some payload");
  for (size_t n_bytes = 0; n_bytes < entry.size(); ++n_bytes) {
    CAPTURE(n_bytes);
    CHECK(CodeOf(entry.substr(0, n_bytes)) == absl::StatusCode::kDataLoss);
  }
  CHECK(CodeOf(entry + "x") == absl::StatusCode::kDataLoss);
}

TEST_CASE("each changed byte is noticed") {
  const std::string entry = EncodeKvEntry(kKey, SomeTokens(), "some payload");
  for (size_t i = 0; i < entry.size(); ++i) {
    CAPTURE(i);
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string changed = entry;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      const bool is_version = i >= 4 && i < 8;
      CHECK(CodeOf(changed) ==
            (is_version ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kDataLoss));
    }
  }
}

TEST_CASE("an entry of something else is refused") {
  const std::string entry = EncodeKvEntry(kKey, SomeTokens(), "some payload");
  KvKey foreign = kKey;
  foreign.block[15] = 1;
  CHECK(CodeOf(entry, foreign) == absl::StatusCode::kFailedPrecondition);
  KvKey other_layer = kKey;
  other_layer.layer += 1;
  CHECK(CodeOf(entry, other_layer) == absl::StatusCode::kFailedPrecondition);
  Tokens other_tokens = SomeTokens();
  other_tokens[15] += 1;
  CHECK(CodeOf(entry, kKey, other_tokens) == absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace stagecoach::worker

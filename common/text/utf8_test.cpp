#include "common/text/utf8.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

namespace stagecoach::text {
namespace {

std::string Take(std::string& pending) {
  std::string out;
  TakeUtf8(pending, out);
  return out;
}

TEST_CASE("Complete characters are taken, and an incomplete last one stays") {
  std::string pending = "a\xC3\xA9\xF0\x9F\x91";  // a, é, three quarters of an emoji
  CHECK(Take(pending) == "aé");
  CHECK(pending == "\xF0\x9F\x91");
  pending += "\x8B";
  CHECK(Take(pending) == "👋");
  CHECK(pending.empty());
}

TEST_CASE("Each maximal invalid part of a character becomes one replacement character") {
  const std::string r(kReplacement);
  std::string pending = "\xF0\x9F\x91x";  // an unfinished character, ended by x
  CHECK(Take(pending) == r + "x");
  pending = "\x80\xC0\xAF";  // a lone continuation byte and an overlong slash
  CHECK(Take(pending) == r + r + r);
  pending = "\xED\xA0\x80";  // a surrogate
  CHECK(Take(pending) == r + r + r);
  pending = "\xF4\x90\x80\x80";  // beyond U+10FFFF
  CHECK(Take(pending) == r + r + r + r);
  pending = "\xE2\x82\xE2\x82\xAC";  // an unfinished character, then the euro sign
  CHECK(Take(pending) == r + "€");
}

TEST_CASE("IsUtf8 accepts only complete characters") {
  CHECK(IsUtf8(""));
  CHECK(IsUtf8("aé€👋"));
  CHECK_FALSE(IsUtf8("\xE2\x82"));
  CHECK_FALSE(IsUtf8("\xC0\x80"));
}

}  // namespace
}  // namespace stagecoach::text

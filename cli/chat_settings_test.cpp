#include "cli/chat_settings.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach::cli {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a parameter is set, listed, and given back to the server") {
  v1::SamplingParams sampling;
  sampling.set_top_k(40);
  REQUIRE(ChangeSetting("temperature 0.5", sampling).ok());
  REQUIRE(ChangeSetting("max_tokens   7", sampling).ok());
  REQUIRE(ChangeSetting("stop the end", sampling).ok());
  REQUIRE(ChangeSetting("ignore-eos on", sampling).ok());
  CHECK(sampling.temperature() == 0.5F);
  CHECK(sampling.max_tokens() == 7);
  CHECK(sampling.top_k() == 40);
  CHECK(sampling.ignore_eos());
  REQUIRE(sampling.stop_size() == 1);
  CHECK(sampling.stop(0) == "the end");
  CHECK(Contains(SettingsText(sampling), "temperature           0.5\n"));
  CHECK(Contains(SettingsText(sampling), "seed                  Random seed"));
  REQUIRE(ChangeSetting("stop off", sampling).ok());  // a text like any other, in place of the old
  CHECK(sampling.stop(0) == "off");
  REQUIRE(ChangeSetting("temperature", sampling).ok());
  REQUIRE(ChangeSetting("ignore-eos off", sampling).ok());
  REQUIRE(ChangeSetting("stop", sampling).ok());
  CHECK(!sampling.has_temperature());
  CHECK(!sampling.ignore_eos());
  CHECK(sampling.stop_size() == 0);
}

TEST_CASE("a wrong name or value changes nothing and says why") {
  v1::SamplingParams sampling;
  CHECK(Contains(std::string(ChangeSetting("temprature 1", sampling).message()),
                 "did you mean temperature?"));
  CHECK(Contains(std::string(ChangeSetting("top-p 3", sampling).message()), "3"));
  CHECK(!ChangeSetting("n 2", sampling).ok());
  CHECK(!ChangeSetting("ignore-eos maybe", sampling).ok());
  CHECK(sampling.ByteSizeLong() == 0);
}

}  // namespace
}  // namespace stagecoach::cli

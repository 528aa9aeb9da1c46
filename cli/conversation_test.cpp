#include "cli/conversation.h"

#include <catch2/catch_test_macros.hpp>

#include "common/temp_dir.h"

namespace stagecoach::cli {
namespace {

std::string Said(const Conversation& conversation) {
  std::string text;
  for (const auto& message : conversation.messages()) {
    text += message.role().substr(0, 1) + ":" + message.content() + " ";
  }
  return text;
}

TEST_CASE("the system message always stays first") {
  Conversation conversation("");
  conversation.Ask("a");
  conversation.Answer("b");
  conversation.SetSystem("s");
  CHECK(Said(conversation) == "s:s u:a a:b ");
  conversation.SetSystem("t");
  CHECK(Said(conversation) == "s:t u:a a:b ");
  conversation.Reset();
  CHECK(Said(conversation) == "s:t ");
  conversation.SetSystem("");
  CHECK(conversation.n_messages() == 0);
}

TEST_CASE("the oldest question is dropped together with its answer; the newest question stays") {
  Conversation conversation("s");
  for (const char* word : {"1", "2", "3"}) {
    conversation.Ask(word);
    if (*word != '3') conversation.Answer(word);
  }
  CHECK(conversation.ForgetOldest());
  CHECK(Said(conversation) == "s:s u:2 a:2 u:3 ");
  CHECK(conversation.ForgetOldest());
  CHECK(Said(conversation) == "s:s u:3 ");
  CHECK_FALSE(conversation.ForgetOldest());
}

TEST_CASE("a saved conversation can be loaded, and a file of another kind is refused") {
  const TempDir dir;
  Conversation conversation("s");
  conversation.Ask("two\nlines");
  REQUIRE(conversation.Save(dir.File("a.json")).ok());
  Conversation other("");
  REQUIRE(other.Load(dir.File("a.json")).ok());
  CHECK(Said(other) == Said(conversation));
  dir.Write("b.json", R"([{"role": "user"}])");
  CHECK(absl::IsInvalidArgument(other.Load(dir.File("b.json"))));
  CHECK(absl::IsInvalidArgument(other.Load(dir.File("none.json"))));
  CHECK(Said(other) == Said(conversation));
}

}  // namespace
}  // namespace stagecoach::cli

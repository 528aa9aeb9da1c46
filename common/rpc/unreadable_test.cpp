#include "common/rpc/unreadable.h"

#include <google/protobuf/descriptor.h>

#include <string>

#include "catch2/catch_test_macros.hpp"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach {
namespace {

template <typename Message>
std::string Why(const std::string& wire) {
  Message message;
  CHECK_FALSE(message.ParseFromString(wire));
  const absl::Status status = WhyUnreadable(*Message::descriptor(), wire);
  CHECK(absl::IsInvalidArgument(status));
  return std::string(status.message());
}

TEST_CASE("for a message with invalid UTF-8, the error names field and byte") {
  TameProtobufLog();
  v1::GenerateRequest request;
  request.set_model("m");
  request.set_text("ab\xFF");
  CHECK(Why<v1::GenerateRequest>(request.SerializeAsString()) ==
        "text: is not valid UTF-8 at byte 2");
  request.set_text("good");
  request.mutable_sampling()->add_stop("x");
  request.mutable_sampling()->add_stop("\xC3");
  CHECK(Why<v1::GenerateRequest>(request.SerializeAsString()) ==
        "sampling.stop[1]: is not valid UTF-8 at byte 0");

  v1::ChatRequest chat;
  chat.add_messages()->set_content("a");
  v1::ChatMessage& message = *chat.add_messages();
  message.add_tool_calls()->set_arguments("{}");
  message.add_tool_calls()->set_arguments("{\"a\": \"\xED\xA0\x80");
  CHECK(Why<v1::ChatRequest>(chat.SerializeAsString()) ==
        "messages[1].tool_calls[1].arguments: is not valid UTF-8 at byte 7");
}

TEST_CASE("for bytes that are not a message, the error says so") {
  v1::ChatRequest chat;
  chat.add_messages()->set_content("some text");
  const std::string wire = chat.SerializeAsString();
  for (const std::string& broken :
       {wire.substr(0, wire.size() - 1), std::string("\xFF\xFF\xFF"), std::string("\x0A\x05x"),
        std::string("\x12\xFF\xFF\xFF\xFF\x0F")}) {
    CHECK(Why<v1::ChatRequest>(broken) == "the message is not a stagecoach.v1.ChatRequest");
  }
}

}  // namespace
}  // namespace stagecoach

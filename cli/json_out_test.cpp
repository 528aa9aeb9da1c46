#include "cli/json_out.h"

#include <boost/json.hpp>
#include <catch2/catch_test_macros.hpp>

namespace stagecoach::cli {
namespace {

std::string Serialize(const Completion& completion) {
  return boost::json::serialize(ToJson(completion, {}));
}

TEST_CASE("A single choice is in the object itself") {
  v1::GenerateResponse piece;
  piece.mutable_prompt()->add_token_ids(1);
  piece.mutable_prompt()->add_token_ids(2);
  piece.set_text("hi \"you\"");
  piece.add_token_ids(3);
  piece.set_finish_reason(v1::FINISH_REASON_LENGTH);
  piece.mutable_usage()->set_prompt_tokens(2);
  piece.mutable_usage()->set_completion_tokens(1);
  piece.mutable_usage()->set_cached_tokens(1);
  piece.mutable_timing()->set_ttft_ms(1.5);
  Completion completion;
  completion.Add(piece);
  CHECK(boost::json::parse(Serialize(completion)) == boost::json::parse(R"({
    "prompt_ids": [1, 2], "token_ids": [3], "text": "hi \"you\"", "finish_reason": "length",
    "stop_reason": null, "usage": {"prompt_tokens": 2, "completion_tokens": 1, "cached_tokens": 1,
    "stored_tokens": {"host": 0, "disk": 0, "store": 0}},
    "timing": {"queue_ms": 0.0, "ttft_ms": 1.5, "total_ms": 0.0, "preemptions": 0}})"));
}

TEST_CASE("Several choices are in a list") {
  Completion completion;
  v1::GenerateResponse piece;
  piece.set_index(1);
  piece.set_text("b");
  piece.set_finish_reason(v1::FINISH_REASON_STOP);
  completion.Add(piece);
  const boost::json::object object = ToJson(completion, {});
  CHECK_FALSE(object.contains("text"));
  CHECK(object.at("choices").as_array().size() == 2);
  CHECK(object.at("choices").at(1).at("index") == 1);
  CHECK(object.at("choices").at(1).at("text") == "b");
}

TEST_CASE("Log-probabilities give tokens with incomplete characters as bytes") {
  v1::GenerateResponse piece;
  piece.add_token_ids(5);
  v1::TokenLogprob& chosen = *piece.add_logprobs()->mutable_chosen();
  chosen.set_token_id(5);
  chosen.set_logprob(-0.5f);
  chosen.set_token("\xE2\x82");
  *piece.mutable_logprobs(0)->add_top() = chosen;
  v1::TokenLogprob& prompt = *piece.mutable_prompt()->add_logprobs()->mutable_chosen();
  prompt.set_token("a");
  Completion completion;
  completion.Add(piece);
  const boost::json::object object = ToJson(completion, {});
  CHECK(object.at("logprobs") == boost::json::parse(R"([{
    "token_id": 5, "token": "��", "bytes": [226, 130], "logprob": -0.5,
    "top": [{"token_id": 5, "token": "��", "bytes": [226, 130], "logprob": -0.5}]}])"));
  CHECK(object.at("prompt_logprobs") == boost::json::parse(R"([null, {
    "token_id": 0, "token": "a", "logprob": 0.0, "top": []}])"));
}

TEST_CASE("The finish reason has the same names as over HTTP") {
  v1::SamplingParams sampling;
  sampling.add_stop("x");
  sampling.add_stop_token_ids(7);
  CHECK(StopReasonJson(sampling, "x") == "x");
  CHECK(StopReasonJson(sampling, "7") == 7);
  CHECK(StopReasonJson(sampling, "2").is_null());  // EOS
  CHECK(StopReasonJson(sampling, "").is_null());
}

TEST_CASE("Text that is not UTF-8 gets replacement characters") {
  CHECK(ToValidUtf8("a\u00e9\u20ac\U0001F600") == "a\u00e9\u20ac\U0001F600");
  CHECK(ToValidUtf8("\xC3") == "\uFFFD");
  CHECK(ToValidUtf8("\xC0\xAF") == "\uFFFD\uFFFD");
  CHECK(ToValidUtf8("\xED\xA0\x80") == "\uFFFD\uFFFD\uFFFD");
  CHECK(ToValidUtf8("\xF4\x90\x80\x80") == "\uFFFD\uFFFD\uFFFD\uFFFD");
  CHECK(ToValidUtf8("") == "");
}

}  // namespace
}  // namespace stagecoach::cli

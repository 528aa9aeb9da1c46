#include "router/text/grammar_params.h"

#include <functional>
#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "router/text/sampling_params.h"
#include "router/text/schema_check.h"
#include "router/text/testing/test_model.h"

namespace stagecoach::router {
namespace {

using Change = std::function<void(v1::SamplingParams&)>;

absl::StatusOr<ResolvedSampling> Resolve(const ServedModel& model, const Change& change) {
  v1::SamplingParams params;
  change(params);
  return ResolveSampling(model, params, 10);
}

v1::SlotSampling Slot(const Change& change) {
  const auto resolved = Resolve(TestModel(), change);
  INFO(resolved.status().ToString());
  REQUIRE(resolved.ok());
  return resolved->slot;
}

std::vector<int32_t> ToVector(const google::protobuf::RepeatedField<int32_t>& ids) {
  return {ids.begin(), ids.end()};
}

TEST_CASE("every kind of grammar is passed to the last stage") {
  const auto check = [](v1::GrammarKind kind, const std::string& source, const auto& change) {
    const v1::SlotSampling slot = Slot([&](auto& p) { change(*p.mutable_grammar()); });
    CHECK(slot.grammar().kind() == kind);
    CHECK(slot.grammar().source() == source);
    CHECK(ToVector(slot.grammar().end_ids()) == std::vector<int32_t>{1});
    CHECK(ToVector(slot.stop_ids()) == std::vector<int32_t>{1});
    CHECK_FALSE(slot.grammar().end_late());
    CHECK_FALSE(slot.grammar().any_whitespace());
  };
  check(v1::GRAMMAR_KIND_JSON_SCHEMA, R"({"type":"null"})",
        [](v1::Grammar& g) { g.set_json_schema(R"({"type":"null"})"); });
  check(v1::GRAMMAR_KIND_JSON_OBJECT, "", [](v1::Grammar& g) { g.set_json_object(true); });
  check(v1::GRAMMAR_KIND_REGEX, "a+", [](v1::Grammar& g) { g.set_regex("a+"); });
  check(v1::GRAMMAR_KIND_LARK, "start: /a/", [](v1::Grammar& g) { g.set_lark("start: /a/"); });
  check(v1::GRAMMAR_KIND_CHOICE, R"(["a","\"b\""])", [](v1::Grammar& g) {
    g.mutable_choice()->add_texts("a");
    g.mutable_choice()->add_texts("\"b\"");
  });
}

TEST_CASE("a grammar can begin after the reasoning") {
  v1::SamplingParams params;
  params.mutable_grammar()->set_regex("a+");
  const auto resolved = ResolveSampling(TestModel(), params, 10, {.begins_after = "</think>"});
  REQUIRE(resolved.ok());
  CHECK(resolved->slot.grammar().begins_after() == "</think>");
}

TEST_CASE("special stop tokens also end a grammar, other stop tokens end only the sequence") {
  const v1::SlotSampling slot = Slot([](auto& p) {
    p.mutable_grammar()->set_regex("a+");
    p.mutable_grammar()->set_any_whitespace(true);
    p.set_ignore_eos(true);
    p.add_stop_token_ids(2);
    p.add_stop_token_ids(40);
  });
  CHECK(ToVector(slot.grammar().end_ids()) == std::vector<int32_t>{1, 2});
  CHECK(ToVector(slot.stop_ids()) == std::vector<int32_t>{1, 2, 40});
  CHECK(slot.grammar().end_late());
  CHECK(slot.grammar().any_whitespace());
}

TEST_CASE("for an invalid grammar, the error names the field") {
  const auto check = [](const std::string& field, const Change& change) {
    const auto resolved = Resolve(TestModel(), change);
    INFO(resolved.status().ToString());
    REQUIRE(absl::IsInvalidArgument(resolved.status()));
    CHECK(std::string(resolved.status().message()).starts_with("sampling.grammar" + field + ": "));
  };
  check("", [](auto& p) { p.mutable_grammar(); });
  check(".json_object", [](auto& p) { p.mutable_grammar()->set_json_object(false); });
  check(".json_schema", [](auto& p) { p.mutable_grammar()->set_json_schema("{"); });
  check(".regex", [](auto& p) { p.mutable_grammar()->set_regex("("); });
  check(".regex", [](auto& p) { p.mutable_grammar()->set_regex("\xff"); });
  check(".lark", [](auto& p) { p.mutable_grammar()->set_lark("start: nothing"); });
  check(".choice", [](auto& p) { p.mutable_grammar()->mutable_choice(); });
  check(".choice.texts[1]", [](auto& p) {
    p.mutable_grammar()->mutable_choice()->add_texts("a");
    p.mutable_grammar()->mutable_choice()->add_texts("\xc3");
  });
  check(".regex", [](auto& p) {
    p.mutable_grammar()->set_regex(std::string(200'000, 'a'));
    p.set_n(128);
  });
}

TEST_CASE("minProperties is accepted only if no property can occur twice") {
  const auto accepts = [](const std::string& schema) {
    const auto resolved =
        Resolve(TestModel(), [&](auto& p) { p.mutable_grammar()->set_json_schema(schema); });
    if (!resolved.ok()) {
      INFO(resolved.status().ToString());
      REQUIRE(absl::IsInvalidArgument(resolved.status()));
      CHECK(resolved.status().message().find("minProperties") != absl::string_view::npos);
    }
    return resolved.ok();
  };
  CHECK(accepts(R"({"type": "object", "minProperties": 1})"));
  CHECK_FALSE(accepts(R"({"type": "object", "minProperties": 2})"));
  CHECK_FALSE(accepts(R"({"items": {"anyOf": [{"type": "object", "minProperties": 2.0}]}})"));
  CHECK_FALSE(accepts(R"({"type": "object", "patternProperties": {"^x": {}}, "minProperties": 2,
                          "additionalProperties": false})"));
  CHECK(accepts(R"({"type": "object", "required": ["a", "b"], "minProperties": 2})"));
  CHECK_FALSE(accepts(R"({"type": "object", "required": ["a", "a"], "minProperties": 2})"));
  CHECK(accepts(R"({"type": "object", "properties": {"minProperties": {"const": 2}}})"));
}

TEST_CASE("schemas inside a Lark grammar are also enforced in full") {
  const auto status = [](const std::string& lark, bool may_be_lenient = false) {
    v1::SamplingParams params;
    params.mutable_grammar()->set_lark(lark);
    return ResolveSampling(TestModel(), params, 10, {.may_be_lenient = may_be_lenient}).status();
  };
  for (const char* accepted : {
           R"(start: "a" %json {"type": "object", "minProperties": 1} "b")",
           "start: \"a\" // %json minimum\n",
           R"(start: %json {"const": "%json {minProperties"})",
           R"(start: %json {"type": "integer", "x-guidance": {"item_separator": ", "}})",
           R"(start: %json {"type": "integer", "x-guidance": {"lenient": false}})",
       }) {
    INFO(accepted);
    INFO(status(accepted).ToString());
    CHECK(status(accepted).ok());
  }
  for (const char* refused : {
           R"(start: %json {"type": "object", "minProperties": 2})",
           R"(start: %json {"type": "object", "min\u0050roperties": 2})",
           R"(start: %json {"type": "object", "minProperties": 1, "minProperties": 2})",
           "start: one | %json\n {\"items\": {\"minProperties\": 3}}\none: %json {\"const\": 1}",
           R"(start: %lark { start: %json {"minProperties": 2} })",
           "# %json [\nstart: %json {\"minProperties\": 2}\n# ]",
           R"(start: %json {"type": "string", "x-guidance": {"lenient": true}})",
           R"(start: %json {"type": "string", "x-guidance": {"lenient": 1}})",
           R"(start: %json {"type": "string", "x-guidance": {"coerce_one_of": true}})",
           R"(start: %json {"type": "string", "x-guidance": {}, "x-guidance": {"lenient": true}})",
           R"(start: %json {"minProperties": 2,})",
       }) {
    INFO(refused);
    CHECK(absl::IsInvalidArgument(status(refused)));
  }
  // Calls of tools that are not strict follow their schemas as far as possible.
  CHECK(status(R"(start: %json {"minProperties": 2, "x-guidance": {"lenient": true}})", true).ok());
  CHECK_FALSE(
      status(R"(start: %json {"minProperties": 2, "x-guidance": {"lenient": false}})", true).ok());
}

TEST_CASE("the check of a Lark grammar full of %json takes linear time") {
  std::string text;
  while (text.size() + 16 < text::kMaxGrammarBytes) text += "%json x\\x\"";
  const auto check = [&](const std::string& behind) {
    return CheckSchemas({.kind = text::GrammarKind::kLark, .text = text + behind},
                        /*may_be_lenient=*/false);
  };
  CHECK(check("").ok());  // left to the compiler to reject
  CHECK(absl::IsInvalidArgument(check("x-guidance")));
  // Before all %json keywords, the word cannot belong to a schema.
  CHECK(CheckSchemas({.kind = text::GrammarKind::kLark, .text = "# x-guidance\n%json x"}, false)
            .ok());
}

TEST_CASE("without an EOS token, a grammar needs a stop token") {
  ServedModel model = TestModel();
  model.defaults.eos_ids.clear();
  const Change grammar = [](auto& p) { p.mutable_grammar()->set_regex("a+"); };
  CHECK(absl::IsInvalidArgument(Resolve(model, grammar).status()));
  CHECK(Resolve(model, [](auto& p) {
          p.mutable_grammar()->set_regex("a+");
          p.add_stop_token_ids(2);
        }).ok());
}

TEST_CASE("a model without grammar support and a last stage that refuses a grammar give errors") {
  ServedModel model = TestModel();
  const Change grammar = [](auto& p) { p.mutable_grammar()->set_regex("a+"); };
  model.grammars = absl::FailedPreconditionError("no table");
  CHECK(absl::IsFailedPrecondition(Resolve(model, grammar).status()));

  std::vector<std::string> prepared;
  model = TestModel();
  model.grammars =
      MakeGrammarCache((*model.grammars)->vocabulary(), [&](const v1::SlotGrammar& grammar) {
        prepared.push_back(grammar.source());
        return prepared.size() > 1 ? absl::UnavailableError("gone") : absl::OkStatus();
      });
  CHECK(Resolve(model, grammar).ok());
  CHECK(Resolve(model, grammar).ok());
  CHECK(prepared == std::vector<std::string>{"a+"});
  CHECK(absl::IsUnavailable(
      Resolve(model, [](auto& p) { p.mutable_grammar()->set_regex("b+"); }).status()));
}

}  // namespace
}  // namespace stagecoach::router

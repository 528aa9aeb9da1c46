#include "worker/stage/grammar_masks.h"

#include <catch2/catch_test_macros.hpp>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "stagecoach/v1/step.pb.h"
#include "worker/stage/testing/toy_pipeline.h"

namespace stagecoach::worker {
namespace {

// Token ids of ToyGrammars: the ends, "ab", "12" and "a".
constexpr int32_t kEnd = 0, kStop = 1, kAb = 7, kTwelve = 8, kA = 33;

v1::SlotGrammar Regex(std::string source, std::vector<int32_t> end_ids) {
  v1::SlotGrammar grammar;
  grammar.set_kind(v1::GRAMMAR_KIND_REGEX);
  grammar.set_source(std::move(source));
  grammar.mutable_end_ids()->Add(end_ids.begin(), end_ids.end());
  return grammar;
}

// Slot 0 of a table, registered.
class One {
 public:
  explicit One(const v1::SlotGrammar& grammar, std::vector<int32_t> generated = {},
               std::shared_ptr<text::GrammarCache> grammars = ToyGrammars())
      : masks_(std::move(grammars), 2, 1) {
    Register(&grammar, generated);
  }

  void Register(const v1::SlotGrammar* grammar, const std::vector<int32_t>& generated = {}) {
    v1::StepPlan plan;
    plan.set_step(1);
    auto* registration = plan.add_registrations();
    registration->add_tokens(5);
    registration->mutable_tokens()->Add(generated.begin(), generated.end());
    registration->set_n_prompt(1);
    if (grammar != nullptr) *registration->mutable_sampling()->mutable_grammar() = *grammar;
    std::string bytes;
    REQUIRE(EncodeStepMeta(plan, 1, &bytes).ok());
    const StepMetaView view = DecodeStepMeta(bytes).value();
    masks_.Apply(view, masks_.Begin(view, ParseSampling(view).value()));
  }

  std::vector<int32_t> Allowed() {
    const TokenMask& mask = masks_.Await(0);
    REQUIRE(mask.status.ok());
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < kToyVocab; ++id) {
      if ((mask.words[id / 32] >> (id % 32) & 1) != 0) ids.push_back(id);
    }
    CHECK(mask.n_allowed == static_cast<int32_t>(ids.size()));
    return ids;
  }

  GrammarMasks& masks() { return masks_; }

 private:
  GrammarMasks masks_;
};

using Ids = std::vector<int32_t>;

TEST_CASE("each token's mask depends on the tokens before it") {
  One one(Regex("(ab)?12", {kEnd}));
  const Ids start = one.Allowed();
  CHECK(start.size() == 4);  // ab, 12, a, 1
  one.masks().Accept(0, kAb);
  CHECK(one.Allowed().size() == 2);
  one.masks().Accept(0, kTwelve);
  CHECK(one.Allowed() == Ids{kEnd});
}

TEST_CASE("a close does not wait for a grammar that is being compiled") {
  std::promise<void> begun, may_go_on;
  const auto gate = std::make_shared<std::shared_future<void>>(may_go_on.get_future().share());
  const auto grammars = std::make_shared<text::GrammarCache>(
      ToyGrammars()->vocabulary(), 1, [&begun, gate](const text::GrammarSource&) {
        begun.set_value();
        gate->wait();
        return absl::OkStatus();
      });
  {
    One one(Regex("ab", {kEnd}), {}, grammars);
    begun.get_future().wait();
    one.masks().Close();
    CHECK(absl::IsCancelled(one.masks().Await(0).status));
    one.masks().Accept(0, kA);  // a row sampled without a mask
  }
  may_go_on.set_value();
}

TEST_CASE("every end id ends a grammar where it may end, and only end ids follow") {
  One one(Regex("a|ab", {kEnd, kStop}));
  CHECK(one.Allowed() == Ids{kAb, kA});
  one.masks().Accept(0, kA);
  const Ids middle = one.Allowed();
  CHECK(middle == Ids{kEnd, kStop, kA + 1});
  one.masks().Accept(0, kStop);
  CHECK(one.Allowed() == Ids{kEnd, kStop});
  one.masks().Accept(0, kEnd);
  CHECK(one.Allowed() == Ids{kEnd, kStop});
}

TEST_CASE("with end_late, the end is allowed only when nothing else is") {
  v1::SlotGrammar grammar = Regex("a|ab", {kEnd});
  grammar.set_end_late(true);
  One one(grammar, {kA});
  CHECK(one.Allowed() == Ids{kA + 1});
  one.masks().Accept(0, kA + 1);
  CHECK(one.Allowed() == Ids{kEnd});
}

TEST_CASE("a registration with generated tokens continues after them") {
  CHECK(One(Regex("(ab)*12", {kEnd}), {kAb, kAb}).Allowed() ==
        One(Regex("(ab)*12", {kEnd})).Allowed());
  CHECK(One(Regex("ab12", {kEnd}), {kAb, kTwelve}).Allowed() == Ids{kEnd});
  CHECK(One(Regex("ab", {kEnd}), {kAb, kEnd}).Allowed() == Ids{kEnd});
}

TEST_CASE("a slot that is registered again has its new grammar, or none") {
  One one(Regex("ab", {kEnd}));
  const v1::SlotGrammar other = Regex("12", {kEnd});
  one.Register(&other, {kTwelve});
  CHECK(one.Allowed() == Ids{kEnd});
  one.Register(nullptr);
  CHECK_FALSE(one.masks().Has(0));
  one.masks().Accept(0, kA);
}

TEST_CASE("a grammar that cannot be followed gives an error, which stays") {
  One bad(Regex("(", {kEnd}));
  CHECK(absl::IsInvalidArgument(bad.masks().Await(0).status));
  bad.masks().Accept(0, kA);
  CHECK(absl::IsInvalidArgument(bad.masks().Await(0).status));

  One forbidden(Regex("ab", {kEnd}));
  forbidden.masks().Await(0);
  forbidden.masks().Accept(0, kTwelve);
  CHECK_FALSE(forbidden.masks().Await(0).status.ok());

  One without(Regex("ab", {kEnd}), {}, nullptr);
  CHECK(absl::IsFailedPrecondition(without.masks().Await(0).status));
}

}  // namespace
}  // namespace stagecoach::worker

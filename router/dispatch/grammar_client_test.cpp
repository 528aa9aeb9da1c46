#include "router/dispatch/grammar_client.h"

#include "catch2/catch_test_macros.hpp"
#include "router/dispatch/testing/fake_stage.h"

namespace stagecoach::router {
namespace {

v1::SlotGrammar Grammar() {
  v1::SlotGrammar grammar;
  grammar.set_kind(v1::GRAMMAR_KIND_REGEX);
  grammar.set_source("a+");
  return grammar;
}

// For one attempt with this lease.
AwaitLease Once(const v1::Lease& lease) {
  return [lease](uint64_t failed_epoch) -> absl::StatusOr<v1::Lease> {
    if (failed_epoch > 0) return absl::UnavailableError("the pipeline did not change");
    return lease;
  };
}

v1::Lease LeaseOf(uint64_t epoch) {
  v1::Lease lease;
  lease.set_epoch(epoch);
  return lease;
}

TEST_CASE("a grammar reaches the last stage") {
  FakeStage stage;
  const PrepareGrammar prepare = MakeGrammarClient(stage.address(), Once(LeaseOf(7)));
  REQUIRE(prepare(Grammar()).ok());
  REQUIRE(stage.grammars().size() == 1);
  CHECK(stage.grammars()[0].lease().epoch() == 7);
  CHECK(stage.grammars()[0].grammar().source() == "a+");
}

TEST_CASE("only a grammar error from the stage is the client's error") {
  FakeStage refuses(
      {.prepare_status = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "too large")});
  CHECK(MakeGrammarClient(refuses.address(), Once(LeaseOf(7)))(Grammar()) ==
        absl::InvalidArgumentError("too large"));
  FakeStage broken({.prepare_status = grpc::Status(grpc::StatusCode::INTERNAL, "a panic")});
  const absl::Status status = MakeGrammarClient(broken.address(), Once(LeaseOf(7)))(Grammar());
  CHECK(absl::IsUnavailable(status));
  CHECK(status.message().find(broken.address()) != std::string::npos);
}

TEST_CASE("a grammar reaches every pipeline that works") {
  FakeStage first, lost({.prepare_status = grpc::Status(grpc::StatusCode::INTERNAL, "a panic")}),
      refuses({.prepare_status = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "too large")});
  const auto of = [](FakeStage& stage) {
    return MakeGrammarClient(stage.address(), Once(LeaseOf(7)));
  };
  CHECK(PrepareOnEach({of(lost), of(first)})(Grammar()).ok());
  CHECK(first.grammars().size() == 1);
  CHECK(absl::IsUnavailable(PrepareOnEach({of(lost), of(lost)})(Grammar())));
  CHECK(PrepareOnEach({of(first), of(refuses)})(Grammar()) ==
        absl::InvalidArgumentError("too large"));
}

TEST_CASE("after a failed call the grammar is sent again in the next epoch") {
  FakeStage broken({.prepare_status = grpc::Status(grpc::StatusCode::INTERNAL, "a panic")});
  uint64_t asked = 0;
  const auto await = [&asked](uint64_t failed_epoch) -> absl::StatusOr<v1::Lease> {
    if (++asked > 3) return absl::UnavailableError("the pipeline is lost");
    return LeaseOf(failed_epoch + 1);
  };
  CHECK(absl::IsUnavailable(MakeGrammarClient(broken.address(), await)(Grammar())));
  REQUIRE(broken.grammars().size() == 3);
  CHECK(broken.grammars()[2].lease().epoch() == 3);
}

}  // namespace
}  // namespace stagecoach::router

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

TEST_CASE("a grammar reaches the last stage") {
  FakeStage stage;
  v1::Lease lease;
  lease.set_epoch(7);
  const PrepareGrammar prepare = MakeGrammarClient(stage.address(), lease);
  REQUIRE(prepare(Grammar()).ok());
  REQUIRE(stage.grammars().size() == 1);
  CHECK(stage.grammars()[0].lease().epoch() == 7);
  CHECK(stage.grammars()[0].grammar().source() == "a+");
}

TEST_CASE("only a grammar error from the stage is the client's error") {
  FakeStage refuses(
      {.prepare_status = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "too large")});
  CHECK(MakeGrammarClient(refuses.address(), {})(Grammar()) ==
        absl::InvalidArgumentError("too large"));
  FakeStage broken({.prepare_status = grpc::Status(grpc::StatusCode::INTERNAL, "a panic")});
  const absl::Status status = MakeGrammarClient(broken.address(), {})(Grammar());
  CHECK(absl::IsUnavailable(status));
  CHECK(status.message().find(broken.address()) != std::string::npos);
}

}  // namespace
}  // namespace stagecoach::router

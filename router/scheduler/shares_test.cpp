// The shares of concurrent tenants: computed tokens, slots, KV blocks, places in the queue.
#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "catch2/catch_approx.hpp"
#include "router/scheduler/testing/core_pipeline.h"

namespace stagecoach::router {
namespace {

constexpr int32_t kTopPriority = -100;

std::unique_ptr<SequenceRequest> RequestOf(const Account& account, SequenceId id, int n_prompt,
                                           int max_tokens, int32_t priority = 0) {
  auto request = MakeRequest(id, n_prompt, max_tokens);
  request->account = account;
  request->cache_salt = account.tenant;
  request->priority = priority;
  return request;
}

SchedulerSnapshot::Tenant Find(const SchedulerSnapshot& snapshot, const std::string& name) {
  for (const auto& tenant : snapshot.tenants) {
    if (tenant.name == name) return tenant;
  }
  return {};
}

SchedulerSnapshot::Tenant Find(const CorePipeline& pipeline, const std::string& name) {
  return Find(pipeline.core.Snapshot(), name);
}

TEST_CASE("Two waiting tenants get tokens by weight, whatever their priorities") {
  struct Case {
    uint32_t weight;
    int n_prompt, n_output;  // of tenant "quiet"; "flood" has 20 and 60
  };
  for (const Case& c :
       {Case{1, 20, 60}, Case{3, 20, 60}, Case{1, 150, 4}, Case{1, 5, 200}, Case{3, 150, 30}}) {
    for (int n_stages : {1, 2}) {
      INFO("weight " << c.weight << " prompt " << c.n_prompt << " stages " << n_stages);
      SchedulerConfig config = SmallConfig(n_stages, 300);
      config.max_sequences = 8;
      CorePipeline pipeline(config);
      const Account flood{"flood"}, quiet{"quiet", c.weight};
      SequenceId id = 0;
      for (int i = 0; i < 300; ++i) pipeline.Submit(RequestOf(flood, ++id, 20, 60, kTopPriority));
      pipeline.Fill();
      pipeline.Turn(20);
      const uint64_t before = Find(pipeline, "flood").computed_tokens;
      for (int i = 0; i < 100; ++i) pipeline.Submit(RequestOf(quiet, ++id, c.n_prompt, c.n_output));
      while (Find(pipeline, "quiet").computed_tokens < 4000) {
        pipeline.Turn(1);
        REQUIRE(Find(pipeline, "quiet").waiting > 0);
      }
      const double of_flood = Find(pipeline, "flood").computed_tokens - before;
      const double of_quiet = Find(pipeline, "quiet").computed_tokens;
      const double share = static_cast<double>(c.weight) / (1 + c.weight);
      CHECK(of_quiet / (of_flood + of_quiet) > 0.9 * share);
      // And not more than its share.
      CHECK(of_quiet / (of_flood + of_quiet) < 1 - 0.9 * (1 - share));
      pipeline.RunToEnd();
      pipeline.RequireAllAsAlone();
    }
  }
}

TEST_CASE("A tenant below its share gets slots from the tenant that has all, up to its share") {
  SchedulerConfig config = SmallConfig(1, 400);
  CorePipeline pipeline(config);
  const Account flood{"flood"}, quiet{"quiet"};
  SequenceId id = 0;
  for (int i = 0; i < 60; ++i) pipeline.Submit(RequestOf(flood, ++id, 30, 200, kTopPriority));
  pipeline.Fill();
  pipeline.Turn(10);
  REQUIRE(Find(pipeline, "flood").running == 16);
  for (int i = 0; i < 30; ++i) pipeline.Submit(RequestOf(quiet, ++id, 30, 200, 100));
  // Each admission waits as long as it takes to recompute the sequence that it preempts.
  pipeline.Turn(60);
  REQUIRE(Find(pipeline, "flood").running == 8);
  REQUIRE(Find(pipeline, "quiet").running == 8);
  REQUIRE(pipeline.core.Snapshot().share_preemptions == 8);
  pipeline.Turn(30);
  REQUIRE(pipeline.core.Snapshot().share_preemptions == 8);
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("A tenant that lacks only a slot waits at most the cost of a preemption") {
  SchedulerConfig config = SmallConfig(1, 400);
  config.max_sequences = 2;
  config.break_even_rows = 1;
  CorePipeline pipeline(config);
  const Account flood{"flood"}, quiet{"quiet"};
  for (SequenceId id = 1; id <= 4; ++id) pipeline.Submit(RequestOf(flood, id, 60, 150));
  pipeline.Fill();
  pipeline.Turn(2);
  const auto sink = pipeline.Submit(RequestOf(quiet, 9, 10, 5));
  // Two tokens per step: about 62 steps are enough for the 60 tokens and those that arrived since.
  pipeline.Turn(25);
  REQUIRE(pipeline.core.Snapshot().share_preemptions == 0);
  pipeline.Turn(60);
  REQUIRE(pipeline.core.Snapshot().share_preemptions == 1);
  REQUIRE_FALSE(sink->record().tokens.empty());
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("A tenant whose answers hold all KV blocks loses those above its share") {
  for (int n_stages : {1, 2}) {
    SchedulerConfig config = SmallConfig(n_stages, 64);
    CorePipeline pipeline(config);
    const Account flood{"flood"}, quiet{"quiet"};
    SequenceId id = 0;
    for (int i = 0; i < 20; ++i) pipeline.Submit(RequestOf(flood, ++id, 150, 100, kTopPriority));
    pipeline.Fill();
    pipeline.Turn(12);
    for (int i = 0; i < 6; ++i) pipeline.Submit(RequestOf(quiet, ++id, 100, 50));
    for (int i = 0; i < 80 && Find(pipeline, "quiet").running < 2; ++i) pipeline.Turn(1);
    const SchedulerSnapshot snapshot = pipeline.core.Snapshot();
    REQUIRE(snapshot.share_preemptions >= 1);
    REQUIRE(Find(snapshot, "quiet").running >= 2);
    pipeline.RunToEnd();
    pipeline.RequireAllAsAlone();
  }
}

TEST_CASE("Growing answers take blocks from tenants above their share, not below") {
  CorePipeline pipeline(SmallConfig(1, 40));
  const Account flood{"flood"}, quiet{"quiet"};
  const auto sink = pipeline.Submit(RequestOf(quiet, 1, 60, 190, /*priority=*/100));
  for (SequenceId id = 2; id <= 9; ++id) {
    pipeline.Submit(RequestOf(flood, id, 60, 190, kTopPriority));
  }
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  REQUIRE(pipeline.core.Snapshot().preemptions > 0);
  REQUIRE(sink->record().times.preemptions == 0);
}

TEST_CASE("With more tenants than the pool has room for, all finish") {
  for (int n_stages : {1, 2, 4}) {
    CorePipeline pipeline(SmallConfig(n_stages, 20));
    for (SequenceId id = 1; id <= 12; ++id) {
      pipeline.Submit(RequestOf({absl::StrCat("tenant ", id)}, id, 40, 200));
    }
    pipeline.RunToEnd();
    pipeline.RequireAllAsAlone();
  }
}

TEST_CASE("A tenant gets no credit for idle time") {
  SchedulerConfig config = SmallConfig(1, 300);
  config.max_sequences = 4;
  CorePipeline pipeline(config);
  const Account busy{"busy"}, idle{"idle"};
  SequenceId id = 0;
  pipeline.Submit(RequestOf(idle, ++id, 20, 5));
  for (int i = 0; i < 200; ++i) pipeline.Submit(RequestOf(busy, ++id, 20, 40));
  pipeline.Fill();
  while (Find(pipeline, "busy").computed_tokens < 4000) pipeline.Turn(1);
  REQUIRE(Find(pipeline, "idle").computed_tokens < 30);
  const uint64_t before = Find(pipeline, "busy").computed_tokens;
  const uint64_t idle_before = Find(pipeline, "idle").computed_tokens;
  for (int i = 0; i < 60; ++i) pipeline.Submit(RequestOf(idle, ++id, 20, 40));
  while (Find(pipeline, "busy").computed_tokens < before + 1000) pipeline.Turn(1);
  const double of_idle = Find(pipeline, "idle").computed_tokens - idle_before;
  REQUIRE(of_idle == Catch::Approx(1000).epsilon(0.3));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("Long prompts of one tenant do not delay another tenant's short prompt") {
  SchedulerConfig config = SmallConfig(1, 1000);
  config.max_batched_tokens = config.max_prefill_chunk = 64;
  config.max_model_len = 4096;
  config.kv_groups[0].n_blocks = 3000;
  CorePipeline pipeline(config);
  for (SequenceId id = 1; id <= 8; ++id) {
    pipeline.Submit(RequestOf({"long"}, id, 4000, 4, kTopPriority));
  }
  pipeline.Fill();
  pipeline.Turn(5);
  const auto sink = pipeline.Submit(RequestOf({"short"}, 20, 30, 4));
  const size_t n_plans = pipeline.plans.size();
  while (sink->record().tokens.empty()) pipeline.Turn(1);
  REQUIRE(pipeline.plans.size() - n_plans <= 4);
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("Within a tenant the order is priority, then arrival") {
  SchedulerConfig config = SmallConfig(1, 300);
  config.max_sequences = 2;
  CorePipeline pipeline(config);
  const Account one{"one"}, other{"other"};
  pipeline.Submit(RequestOf(one, 1, 20, 40));
  pipeline.Submit(RequestOf(other, 2, 20, 40));
  pipeline.Fill();
  const auto late = pipeline.Submit(RequestOf(one, 3, 20, 10, /*priority=*/5));
  const auto soon = pipeline.Submit(RequestOf(one, 4, 20, 10, /*priority=*/-5));
  while (late->record().tokens.empty()) pipeline.Turn(1);
  REQUIRE(soon->record().finish != Finish::kNone);
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("A full queue makes room for a tenant below its share of the queue") {
  SchedulerConfig config = SmallConfig(1, 64);
  config.max_sequences = 1;
  config.max_waiting = 8;
  CorePipeline pipeline(config);
  const Account flood{"flood"}, quiet{"quiet"};
  SequenceId id = 0;
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  const auto submit = [&](const Account& account, int32_t priority = 0, int n = 1) {
    std::vector<std::unique_ptr<SequenceRequest>> requests;
    for (int i = 0; i < n; ++i) {
      requests.push_back(RequestOf(account, ++id, 20, 30, priority));
      sinks.push_back(std::make_shared<RecordingSink>());
      requests.back()->sink = sinks.back();
    }
    pipeline.core.Submit(std::move(requests), std::chrono::steady_clock::now());
    return sinks.back();
  };
  const auto is_refused = [](const auto& sink) {
    return absl::IsResourceExhausted(sink->record().error);
  };
  submit(flood);
  pipeline.Fill();
  for (int i = 0; i < 4; ++i) submit(flood, kTopPriority);
  submit(flood, kTopPriority, /*n=*/2);
  submit(flood, kTopPriority, /*n=*/2);
  REQUIRE(is_refused(submit(flood, kTopPriority)));
  const size_t n_before = sinks.size();
  // Four places belong to tenant "quiet". The last call of "flood" goes first, as a whole.
  for (int i = 0; i < 4; ++i) REQUIRE_FALSE(is_refused(submit(quiet)));
  REQUIRE(is_refused(submit(quiet)));
  REQUIRE(is_refused(submit(flood, kTopPriority)));
  std::vector<size_t> refused;
  for (size_t i = 0; i < n_before; ++i) {
    if (is_refused(sinks[i])) refused.push_back(i);
  }
  REQUIRE(refused == std::vector<size_t>{5, 6, 7, 8, 9});
  REQUIRE(pipeline.core.Snapshot().evicted == 4);
  pipeline.RunToEnd();
  for (const auto& sink : sinks) REQUIRE(sink->record().ended());
}

TEST_CASE("Waiting tokens are shared like queue places") {
  SchedulerConfig config = SmallConfig(1, 64);
  config.max_sequences = 1;
  config.max_waiting_tokens = 400;
  CorePipeline pipeline(config);
  const Account flood{"flood"}, quiet{"quiet"};
  pipeline.Submit(RequestOf(flood, 1, 20, 30));
  pipeline.Fill();
  std::vector<std::shared_ptr<RecordingSink>> flooding;
  for (SequenceId id = 2; id <= 5; ++id) {
    flooding.push_back(pipeline.Submit(RequestOf(flood, id, 100, 10)));
  }
  const auto first = pipeline.Submit(RequestOf(quiet, 6, 150, 10));
  REQUIRE(first->record().error.ok());
  REQUIRE(absl::IsResourceExhausted(flooding[3]->record().error));
  REQUIRE(absl::IsResourceExhausted(flooding[2]->record().error));
  REQUIRE(flooding[1]->record().error.ok());
  const auto second = pipeline.Submit(RequestOf(quiet, 7, 100, 10));
  REQUIRE(absl::IsResourceExhausted(second->record().error));
  pipeline.RunToEnd();
}

}  // namespace
}  // namespace stagecoach::router

#include "router/replicas/snapshot_sum.h"

#include <algorithm>

namespace stagecoach::router {

void AddSnapshot(const SchedulerSnapshot& one, SchedulerSnapshot& sum) {
  sum.running += one.running;
  sum.waiting += one.waiting;
  sum.loading += one.loading;
  sum.waiting_high += one.waiting_high;
  sum.waiting_low += one.waiting_low;
  sum.in_flight += one.in_flight;
  sum.steps += one.steps;
  sum.preemptions += one.preemptions;
  sum.share_preemptions += one.share_preemptions;
  sum.evicted += one.evicted;
  sum.prompt_tokens += one.prompt_tokens;
  sum.prefix_queries += one.prefix_queries;
  sum.prefix_hits += one.prefix_hits;
  sum.kv_store_hits += one.kv_store_hits;
  sum.kv_saves += one.kv_saves;
  sum.prefix_cache = one.prefix_cache;
  sum.generated_tokens += one.generated_tokens;
  sum.in_flight_ms += one.in_flight_ms;
  sum.kv.resize(one.kv.size());
  for (size_t g = 0; g < one.kv.size(); ++g) {
    sum.kv[g].window = one.kv[g].window;
    if (one.down) continue;
    sum.kv[g].total_blocks += one.kv[g].total_blocks;
    sum.kv[g].free_blocks += one.kv[g].free_blocks;
  }
  for (const SchedulerSnapshot::Tenant& tenant : one.tenants) {
    auto found = std::find_if(sum.tenants.begin(), sum.tenants.end(),
                              [&](const auto& other) { return other.name == tenant.name; });
    if (found == sum.tenants.end()) {
      sum.tenants.push_back(tenant);
      continue;
    }
    found->running += tenant.running;
    found->waiting += tenant.waiting;
    found->computed_tokens += tenant.computed_tokens;
  }
  sum.down = sum.down && one.down;
}

}  // namespace stagecoach::router

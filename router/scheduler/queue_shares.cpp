#include "router/scheduler/queue_shares.h"

#include <algorithm>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace stagecoach::router {
namespace {

// One of the two limits of the queue.
struct Bound {
  uint64_t n_held;   // held by all tenants
  uint64_t n_asked;  // needed by the newcomer
  uint64_t most;
  bool takes_any_alone;  // a newcomer above the limit may wait alone
  uint64_t (*of_tenant)(const Tenant&);

  bool holds() const { return n_held + n_asked <= most || (takes_any_alone && n_held == 0); }
  // Whether the tenant stays within its share with the newcomer.
  bool IsWithinShare(const Tenants& tenants, const Tenant& tenant) const {
    const uint64_t held = of_tenant(tenant);
    return (takes_any_alone && held == 0) || tenants.TimesShare(tenant, held + n_asked, most) <= 1;
  }
};

Bound SequencesBound(const SchedulerState& state, size_t n_asked) {
  return {.n_held = static_cast<uint64_t>(state.waiting().n_new()),
          .n_asked = n_asked,
          .most = static_cast<uint64_t>(state.config().max_waiting),
          .takes_any_alone = false,
          .of_tenant = [](const Tenant& tenant) { return uint64_t{tenant.n_new}; }};
}

Bound TokensBound(const SchedulerState& state, uint64_t n_asked) {
  return {.n_held = state.waiting().n_new_tokens(),
          .n_asked = n_asked,
          .most = state.config().max_waiting_tokens,
          .takes_any_alone = true,
          .of_tenant = [](const Tenant& tenant) { return tenant.n_new_tokens; }};
}

absl::Status Full(const SchedulerState& state, const Bound& sequences) {
  const std::string what =
      sequences.holds()
          ? absl::StrCat("prompts of ", state.waiting().n_new_tokens(),
                         " tokens are waiting and the limit is ", state.config().max_waiting_tokens,
                         " may")
          : absl::StrCat(state.waiting().n_new(), " sequences are waiting and the limit is ",
                         state.config().max_waiting, " may");
  return absl::ResourceExhaustedError(
      absl::StrCat("the queue is full: ", what, "; try again later"));
}

// The last sequence, in order of service, among the tenant's calls that have not begun. Null: none.
Sequence* LastNotBegun(const Tenant& tenant) {
  Sequence* last = nullptr;
  for (const auto* sequences : {&tenant.waiting, &tenant.loading}) {
    const auto found = std::find_if(sequences->rbegin(), sequences->rend(),
                                    [](const Sequence* one) { return !one->request->call->begun; });
    if (found == sequences->rend()) continue;
    if (last == nullptr || ServedFirst()(last, *found)) last = *found;
  }
  return last;
}

// The tenants of the queue's sequences.
std::vector<const Tenant*> TenantsInQueue(const SchedulerState& state) {
  std::vector<const Tenant*> tenants(state.waiting().tenants().begin(),
                                     state.waiting().tenants().end());
  if (state.waiting().n_loading() == 0) return tenants;
  for (const auto& tenant : state.tenants().all()) {
    if (tenant->waiting.empty() && !tenant->loading.empty()) tenants.push_back(tenant.get());
  }
  return tenants;
}

// The next sequence to evict: from the tenant furthest beyond its share. Null: none.
Sequence* FirstToGo(const SchedulerState& state, const Tenant& but_for, const Bound& bound) {
  Sequence* first = nullptr;
  double times_share = 1;
  for (const Tenant* tenant : TenantsInQueue(state)) {
    const double times = state.tenants().TimesShare(*tenant, bound.of_tenant(*tenant), bound.most);
    if (tenant == &but_for || times <= times_share) continue;
    if (Sequence* last = LastNotBegun(*tenant)) {
      first = last;
      times_share = times;
    }
  }
  return first;
}

}  // namespace

absl::Status MakeQueueRoom(SchedulerState& state, const Account& account, size_t n_sequences,
                           uint64_t n_tokens, std::vector<std::shared_ptr<Sequence>>& evicted) {
  Tenant& tenant = *state.tenants().Of(account);
  state.tenants().Enter(&tenant);  // it counts as active when shares are computed
  const absl::Cleanup leave = [&] { state.tenants().Leave(&tenant); };
  while (true) {
    const Bound sequences = SequencesBound(state, n_sequences);
    const Bound tokens = TokensBound(state, n_tokens);
    if (sequences.holds() && tokens.holds()) return absl::OkStatus();
    const Bound& short_of = sequences.holds() ? tokens : sequences;
    Sequence* goes = sequences.IsWithinShare(state.tenants(), tenant) &&
                             tokens.IsWithinShare(state.tenants(), tenant)
                         ? FirstToGo(state, tenant, short_of)
                         : nullptr;
    if (goes == nullptr) return Full(state, sequences);
    for (auto& sequence : state.EndCall(*goes)) {
      evicted.push_back(std::move(sequence));
    }
  }
}

}  // namespace stagecoach::router

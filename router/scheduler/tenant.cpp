#include "router/scheduler/tenant.h"

#include "common/check.h"

namespace stagecoach::router {

Tenant* Tenants::Of(const Account& account) {
  SC_CHECK(account.weight > 0);
  Tenant*& tenant = by_name_[account.tenant];
  if (tenant == nullptr) {
    all_.push_back(std::make_unique<Tenant>(account, static_cast<uint32_t>(all_.size())));
    tenant = all_.back().get();
  } else if (tenant->weight != account.weight) {
    if (tenant->is_active()) active_weight_ += account.weight - uint64_t{tenant->weight};
    tenant->weight = account.weight;
  }
  return tenant;
}

void Tenants::Enter(Tenant* tenant) {
  if (tenant->n_present++ > 0) return;
  ++n_active_;
  active_weight_ += tenant->weight;
}

void Tenants::Leave(Tenant* tenant) {
  SC_CHECK(tenant->n_present > 0);
  if (--tenant->n_present > 0) return;
  --n_active_;
  active_weight_ -= tenant->weight;
}

double Tenants::TimesShare(const Tenant& tenant, uint64_t held, uint64_t total) const {
  const uint64_t weights = active_weight_ + (tenant.is_active() ? 0 : tenant.weight);
  return static_cast<double>(held) * static_cast<double>(weights) /
         (static_cast<double>(tenant.weight) * static_cast<double>(total));
}

}  // namespace stagecoach::router

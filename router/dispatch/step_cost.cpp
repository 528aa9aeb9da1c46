#include "router/dispatch/step_cost.h"

#include <algorithm>
#include <bit>

namespace stagecoach::router {
namespace {

// Factor by which a bucket's longest time decays with each step of this size.
constexpr double kKept = 0.9;

double Ratio(uint64_t wanted, uint64_t known) {
  return static_cast<double>(wanted) / static_cast<double>(std::max<uint64_t>(known, 1));
}

}  // namespace

StepSize PlanSizer::operator()(const v1::StepPlan& plan) {
  for (const v1::SlotRegistration& registration : plan.registrations()) {
    if (registration.slot() >= tells_prompt_.size()) tells_prompt_.resize(registration.slot() + 1);
    tells_prompt_[registration.slot()] = registration.sampling().n_prompt_logprobs() >= 0;
  }
  StepSize size;
  for (const v1::SlotDelta& slot : plan.slots()) {
    const uint64_t n = slot.n_tokens();
    size.n_rows += n;
    size.n_pairs += n * slot.start() + n * (n + 1) / 2;
    const bool tells = slot.slot() < tells_prompt_.size() && tells_prompt_[slot.slot()];
    size.n_logits += tells ? n : uint64_t{slot.sample()};
  }
  return size;
}

StepCost::StepCost(const StepSize& size, Duration took) : tried_{size, took} {}

StepCost::Key StepCost::KeyOf(const StepSize& size) {
  return {std::bit_width(size.n_rows), std::bit_width(size.n_pairs), std::bit_width(size.n_logits)};
}

void StepCost::Learn(const StepSize& size, Duration took) {
  Sample& sample = learned_[KeyOf(size)];
  const auto kept = std::chrono::duration_cast<Duration>(sample.took * kKept);
  sample = took >= kept ? Sample{size, took} : Sample{sample.size, kept};
}

StepCost::Duration StepCost::Expect(const StepSize& size) const {
  const auto from = [&size](const Sample& known) {
    const double ratio = std::max({1.0, Ratio(size.n_rows, known.size.n_rows),
                                   Ratio(size.n_pairs, known.size.n_pairs),
                                   Ratio(size.n_logits, known.size.n_logits)});
    return std::chrono::duration_cast<Duration>(known.took * ratio);
  };
  if (const auto same = learned_.find(KeyOf(size)); same != learned_.end()) {
    return from(same->second);
  }
  Duration least = from(tried_);
  for (const auto& [key, sample] : learned_) least = std::min(least, from(sample));
  return least;
}

}  // namespace stagecoach::router

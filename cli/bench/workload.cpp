#include "cli/bench/workload.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace stagecoach::bench {
namespace {

class Draw {
 public:
  explicit Draw(const RandomWorkload& workload)
      : rng_(workload.seed),
        ids_(0, static_cast<int32_t>(std::max(workload.vocab_size, 1u)) - 1),
        spread_(workload.spread) {}

  int32_t Id() { return ids_(rng_); }

  uint32_t Length(uint32_t tokens) {
    const auto low = static_cast<uint32_t>(std::floor((1 - spread_) * tokens));
    const auto high = static_cast<uint32_t>(std::ceil((1 + spread_) * tokens));
    return std::max(1u, std::uniform_int_distribution<uint32_t>(low, high)(rng_));
  }

 private:
  std::mt19937_64 rng_;
  std::uniform_int_distribution<int32_t> ids_;
  const double spread_;
};

}  // namespace

std::vector<Request> RandomRequests(const RandomWorkload& workload) {
  Draw draw(workload);
  std::vector<std::vector<int32_t>> prefixes(std::max(workload.n_prefixes, 1u));
  for (std::vector<int32_t>& prefix : prefixes) {
    prefix.resize(workload.prefix_tokens);
    for (int32_t& id : prefix) id = draw.Id();
  }

  std::vector<Request> requests;
  for (size_t i = 0; i < workload.n_requests; ++i) {
    v1::GenerateRequest request;
    const uint32_t n_input = draw.Length(workload.input_tokens);
    const std::vector<int32_t>& prefix = prefixes[i % prefixes.size()];
    auto& ids = *request.mutable_tokens()->mutable_ids();
    ids.Reserve(static_cast<int>(n_input));
    for (uint32_t t = 0; t < n_input; ++t) ids.Add(t < prefix.size() ? prefix[t] : draw.Id());
    v1::SamplingParams& sampling = *request.mutable_sampling();
    sampling.set_temperature(0);
    sampling.set_ignore_eos(true);
    sampling.set_max_tokens(draw.Length(workload.output_tokens));
    requests.emplace_back(std::move(request));
  }
  return requests;
}

}  // namespace stagecoach::bench

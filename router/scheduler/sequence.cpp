#include "router/scheduler/sequence.h"

#include <utility>

namespace stagecoach::router {

Sequence::Sequence(std::unique_ptr<SequenceRequest> request_in, uint64_t arrival_in,
                   std::chrono::steady_clock::time_point submitted_in)
    : request(std::move(request_in)),
      arrival(arrival_in),
      submitted(submitted_in),
      tokens(std::move(request->prompt)),
      n_prompt(static_cast<uint32_t>(tokens.size())) {}

}  // namespace stagecoach::router

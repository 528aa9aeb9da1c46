#include "router/dispatch/fetch_answers.h"

#include <algorithm>

#include "common/check.h"

namespace stagecoach::router {

void FetchAnswers::Ask(uint64_t id) {
  SC_CHECK(fetches_.emplace(id, Fetch{.has_answered = std::vector<bool>(n_stages_)}).second);
}

bool FetchAnswers::Answer(size_t stage, const v1::KvFetched& fetched,
                          std::optional<uint32_t>& of_all) {
  const auto found = fetches_.find(fetched.id());
  if (found == fetches_.end() || found->second.has_answered[stage]) return false;
  Fetch& fetch = found->second;
  fetch.has_answered[stage] = true;
  fetch.n_blocks = std::min(fetch.n_blocks, fetched.n_blocks());
  if (++fetch.n_answers < n_stages_) return true;
  of_all = fetch.n_blocks;
  fetches_.erase(found);
  return true;
}

}  // namespace stagecoach::router

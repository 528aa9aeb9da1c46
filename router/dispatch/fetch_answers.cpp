#include "router/dispatch/fetch_answers.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace stagecoach::router {

void FetchAnswers::Ask(uint64_t id) {
  SC_CHECK(fetches_.emplace(id, Fetch{.has_answered = std::vector<bool>(n_stages_)}).second);
}

bool FetchAnswers::Answer(size_t stage, const v1::KvFetched& fetched,
                          std::optional<v1::KvFetched>& of_all) {
  const auto found = fetches_.find(fetched.id());
  if (found == fetches_.end() || found->second.has_answered[stage]) return false;
  Fetch& fetch = found->second;
  fetch.has_answered[stage] = true;
  if (fetch.n_answers == 0 || fetched.n_blocks() < fetch.fewest.n_blocks()) fetch.fewest = fetched;
  if (fetched.ends_at_state()) fetch.at_state = std::max(fetch.at_state, fetched.n_blocks());
  if (++fetch.n_answers < n_stages_) return true;
  if (fetch.fewest.n_blocks() < fetch.at_state) fetch.fewest.set_n_blocks(0);
  of_all = std::move(fetch.fewest);
  fetches_.erase(found);
  return true;
}

}  // namespace stagecoach::router

// Collects the stages' answers to fetches of KV blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "stagecoach/v1/step.pb.h"

namespace stagecoach::router {

// Not thread-safe.
class FetchAnswers {
 public:
  explicit FetchAnswers(size_t n_stages) : n_stages_(n_stages) {}

  // All stages are asked for the fetch with this id. REQUIRES: it is new.
  void Ask(uint64_t id);
  // A stage has answered. When it is the last one, sets `of_all` to the answer with the fewest
  // blocks: all stages have these. If stages with recurrent layers have states of different
  // positions, there are none: without its state, a block is of no use. False: the stage was not
  // asked, or has answered already.
  bool Answer(size_t stage, const v1::KvFetched& fetched, std::optional<v1::KvFetched>& of_all);

 private:
  struct Fetch {
    std::vector<bool> has_answered;  // by stage
    size_t n_answers = 0;
    v1::KvFetched fewest;   // of all that have answered
    uint32_t at_state = 0;  // blocks before the state that stages have; 0: none has one
  };
  const size_t n_stages_;
  absl::flat_hash_map<uint64_t, Fetch> fetches_;  // by id; with an answer outstanding
};

}  // namespace stagecoach::router

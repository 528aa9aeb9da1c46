#include "router/scheduler/waiting_queue.h"

#include "common/check.h"

namespace stagecoach::router {

void WaitingQueue::Add(Sequence* sequence) {
  SC_CHECK(sequences_.insert(sequence).second);
  Count(*sequence, 1);
  n_to_prefill_ += sequence->n_to_prefill;
}

void WaitingQueue::Remove(Sequence* sequence) {
  SC_CHECK(sequences_.erase(sequence) == 1);
  Count(*sequence, -1);
  n_to_prefill_ -= sequence->n_to_prefill;
}

void WaitingQueue::Count(const Sequence& sequence, int sign) {
  if (!sequence.was_admitted) {
    n_new_ += sign;
    n_new_tokens_ += sign * uint64_t{sequence.n_prompt};
  }
  const int32_t priority = sequence.request->priority;
  if (priority < 0) n_high_ += sign;
  if (priority > 0) n_low_ += sign;
}

}  // namespace stagecoach::router

#include "router/scheduler/waiting_queue.h"

#include "common/check.h"

namespace stagecoach::router {

void WaitingQueue::Add(Sequence* sequence) {
  SC_CHECK(sequences_.insert(sequence).second);
  n_new_ += sequence->was_admitted ? 0 : 1;
  n_tokens_ += sequence->n_tokens();
}

void WaitingQueue::Remove(Sequence* sequence) {
  SC_CHECK(sequences_.erase(sequence) == 1);
  n_new_ -= sequence->was_admitted ? 0 : 1;
  n_tokens_ -= sequence->n_tokens();
}

}  // namespace stagecoach::router

// The part of SchedulerState for choices of a request to a model with recurrent layers.
//
// A sequence adopts blocks of the step being planned, but no state, because a state comes with the
// step's last row. So choices that begin together would each compute the whole prompt. In place of
// that, the first one leads: the others follow, outside of the queue, until the leader has its
// first token. Then the prefix cache has the state at the end of the prompt.
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "router/scheduler/state.h"

namespace stagecoach::router {

bool SchedulerState::Follow(Sequence* sequence) {
  const Sequence* const leader = leader_ ? Find(*leader_) : nullptr;
  const bool follows = leader != nullptr && kv_.saves_states() && config_.n_saved_states() > 0 &&
                       !sequence->request->past && leader->n_generated() == 0 &&
                       sequence->n_prompt > kBlockTokens && MayAdopt(*sequence) &&
                       leader->request->cache_salt == sequence->request->cache_salt &&
                       std::ranges::equal(leader->tokens(), sequence->tokens());
  if (follows) AddFollower(leader->id(), sequence);
  return follows;
}

void SchedulerState::AddFollower(SequenceId leader, Sequence* sequence) {
  sequence->state = Sequence::State::kLoading;
  sequence->leader = leader;
  waiting_.AddLoading(sequence);
  followers_[leader].push_back(sequence);
}

std::vector<Sequence*> SchedulerState::TakeFollowers(SequenceId leader) {
  const auto found = followers_.find(leader);
  if (found == followers_.end()) return {};
  std::vector<Sequence*> followers = std::move(found->second);
  followers_.erase(found);
  for (Sequence* sequence : followers) {
    waiting_.RemoveLoading(sequence);
    sequence->state = Sequence::State::kWaiting;
    sequence->leader.reset();
  }
  return followers;
}

void SchedulerState::ReleaseFollowers(const Sequence& leader) {
  for (Sequence* sequence : TakeFollowers(leader.id())) Queue(sequence);
}

void SchedulerState::LeaveLeader(Sequence* sequence) {
  if (!sequence->leader) return;
  const auto found = followers_.find(*sequence->leader);
  SC_CHECK(found != followers_.end());
  std::erase(found->second, sequence);
  if (found->second.empty()) followers_.erase(found);
  sequence->leader.reset();
}

void SchedulerState::ReplaceLeader(const Sequence& leader) {
  const std::vector<Sequence*> followers = TakeFollowers(leader.id());
  for (Sequence* sequence : followers) {
    if (sequence != followers.front()) {
      AddFollower(followers.front()->id(), sequence);
    } else if (!Load(sequence, /*has_twin=*/false)) {
      Queue(sequence);
    }
  }
}

}  // namespace stagecoach::router

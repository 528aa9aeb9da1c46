// A pipeline without a model. It executes plans like a strict stage, reports every error in them,
// and generates tokens as a deterministic function of seed, position and history.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "router/scheduler/prefix_tree.h"
#include "router/scheduler/scheduler.h"
#include "router/scheduler/testing/fake_kv_store.h"

namespace stagecoach::router {

// Generates the token after `history_hash`, a hash of all tokens before it. Stop ids are forbidden
// below min_tokens.
class TokenSource {
 public:
  static constexpr int32_t kVocabularySize = 64;
  static constexpr uint64_t kEmptyHistory = 0x9e3779b97f4a7c15;

  static uint64_t Extend(uint64_t history_hash, int32_t token);
  static int32_t Next(uint64_t history_hash, uint32_t position, uint32_t n_prompt,
                      const v1::SlotSampling& sampling);
};

// The tokens that `request` generates when it runs alone.
std::vector<int32_t> TokensAlone(const SequenceRequest& request, int32_t max_model_len);

// The values of a request with pooling: chosen logits, or a hidden state of this size.
inline constexpr int32_t kPooledSize = 4;
std::vector<float> PooledAlone(const SequenceRequest& request);

// Not thread-safe. If logprobs are requested, `chosen` is -token for a sampled token, and the
// position for a prompt token.
class StrictStage {
 public:
  // `store` outlives the stage; null: there is none.
  explicit StrictStage(const SchedulerConfig& config, FakeKvStore* store = nullptr);

  // Begins another epoch, without any memory of the one before but, with kv_kept, the blocks'
  // contents. Errors are kept.
  void BeginEpoch(uint64_t epoch, bool kv_kept = false);

  // Executes the plan. Adds its errors to errors().
  v1::StepResult Apply(const v1::StepPlan& plan);

  // Reads blocks from the store, and holds them until a plan forgets them.
  v1::KvFetched Fetch(const v1::KvFetch& fetch);
  size_t n_held() const { return held_.size(); }  // fetches

  const std::vector<std::string>& errors() const { return errors_; }

 private:
  struct Slot {
    uint64_t owner = 0;            // number of the registration; 0: none
    std::vector<int32_t> tokens;   // registered and sampled tokens
    std::vector<uint64_t> hashes;  // per token: hash of all tokens up to and including it
    uint32_t n_registered = 0;
    uint32_t n_prompt = 0;
    uint32_t next_position = 0;
    v1::SlotSampling sampling;
    std::vector<std::vector<uint32_t>> tables;  // per group
  };
  // Contents of a physical block. Other slots may read what the owner wrote if they would have
  // written the same.
  struct Block {
    uint64_t owner = 0;
    uint32_t index = 0;     // in the owner's table
    uint32_t n_filled = 0;  // filled positions, from the start of the block
    std::array<uint64_t, kBlockTokens>
        hashes{};  // per position: hash of all tokens up to and including it
  };

  // In a save or restore: ids of blocks by group, then that of a saved state.
  int NNumbers() const;
  // Null: there is none.
  uint64_t* SavedStateOf(const google::protobuf::RepeatedField<uint32_t>& numbers);
  void Save(const v1::KvSave& save);
  void SaveBlocks(const v1::KvSave& save, FakeStoredBlock& stored);
  void Restore(const v1::KvRestore& restore);
  void Fill(const v1::KvRestore& restore, const FakeStoredBlock& stored);
  void Register(const v1::SlotRegistration& registration);
  // Takes over a saved recurrent state, or begins a new one.
  void BeginState(const v1::SlotRegistration& registration);
  // The recurrent state follows the rows.
  void MoveState(const v1::SlotDelta& delta);
  void SaveState(const v1::SlotDelta& delta);
  bool CheckDelta(const v1::SlotDelta& delta);
  void AppendToken(Slot& slot, int32_t token);
  void TakeBlocks(const v1::SlotDelta& delta);
  void Write(const v1::SlotDelta& delta);
  void CheckReads(const v1::SlotDelta& delta);
  void Sample(const v1::SlotDelta& delta, v1::StepResult& result);
  void Fail(const std::string& what);

  const SchedulerConfig config_;
  uint64_t epoch_;
  bool kv_kept_ = false;  // of an earlier epoch, so sequences may begin anywhere
  std::vector<Slot> slots_;
  std::vector<std::vector<Block>> blocks_;  // per group and id
  // Recurrent states by number, those of slots first: the hash of all tokens that one has seen.
  // 0: it holds nothing.
  std::vector<uint64_t> states_;
  std::set<uint32_t> saved_;  // states that this step saves
  FakeKvStore* const store_;
  std::map<uint64_t, std::vector<FakeStoredBlock>> held_;          // by fetch
  std::vector<std::pair<v1::KvRestore, FakeStoredBlock>> beside_;  // the next step sees them
  uint64_t step_ = 0;
  uint64_t n_registrations_ = 0;
  std::vector<std::string> errors_;
};

}  // namespace stagecoach::router

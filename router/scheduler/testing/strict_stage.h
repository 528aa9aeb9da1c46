// A pipeline without a model: carries out plans as a strict stage would, complains of everything
// that is wrong with them, and generates tokens as a deterministic function of seed, position and
// history.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "router/scheduler/scheduler.h"

namespace stagecoach::router {

// The token that follows `history_hash` (of all tokens before it). Stop ids are forbidden below
// min_tokens.
class TokenSource {
 public:
  static constexpr int32_t kVocabularySize = 64;
  static constexpr uint64_t kEmptyHistory = 0x9e3779b97f4a7c15;

  static uint64_t Extend(uint64_t history_hash, int32_t token);
  static int32_t Next(uint64_t history_hash, uint32_t position, uint32_t n_prompt,
                      const v1::SlotSampling& sampling);
};

// What `request` generates when it has the pipeline for itself.
std::vector<int32_t> TokensAlone(const SequenceRequest& request, int32_t max_model_len);

// Not thread-safe. Logprobs, where asked for: `chosen` is -token, and for a prompt token its
// position.
class StrictStage {
 public:
  explicit StrictStage(const SchedulerConfig& config);

  // Carries the plan out. What is wrong with it is added to errors().
  v1::StepResult Apply(const v1::StepPlan& plan);

  const std::vector<std::string>& errors() const { return errors_; }

 private:
  struct Slot {
    uint64_t owner = 0;            // which registration; 0: none
    std::vector<int32_t> tokens;   // registered and sampled
    std::vector<uint64_t> hashes;  // of the tokens up to and with each
    uint32_t n_registered = 0;
    uint32_t n_prompt = 0;
    uint32_t next_position = 0;
    v1::SlotSampling sampling;
    std::vector<std::vector<uint32_t>> tables;  // by group
  };
  // What a physical block holds. Others may read what its owner wrote, where they would have
  // written the same.
  struct Block {
    uint64_t owner = 0;
    uint32_t index = 0;                 // in the owner's table
    uint32_t n_filled = 0;              // positions from its start on
    std::array<uint64_t, 16> hashes{};  // of the tokens up to and with each position's
  };

  void Register(const v1::SlotRegistration& registration);
  bool CheckDelta(const v1::SlotDelta& delta);
  void AppendToken(Slot& slot, int32_t token);
  void TakeBlocks(const v1::SlotDelta& delta);
  void Write(const v1::SlotDelta& delta);
  void CheckReads(const v1::SlotDelta& delta);
  void Sample(const v1::SlotDelta& delta, v1::StepResult& result);
  void Fail(const std::string& what);

  const SchedulerConfig config_;
  std::vector<Slot> slots_;
  std::vector<std::vector<Block>> blocks_;  // by group, by id
  uint64_t step_ = 0;
  uint64_t n_registrations_ = 0;
  std::vector<std::string> errors_;
};

}  // namespace stagecoach::router

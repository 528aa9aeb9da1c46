#include "kernels/cuda/step/step_builder.h"

#include "kernels/cuda/testing/device_values.h"

namespace stagecoach::kernels {
namespace {

TEST_CASE("a step is built from slots and new blocks, and recorded calls use it") {
  const auto ops = NewCudaOps();
  const auto step = *ops->NewStepInputs(
      {.max_tokens = 32, .max_slots = 4, .max_blocks = 3, .groups = {{0}, {20}}});
  const auto ints = [&](const int32_t* from, int32_t n) {
    std::vector<int32_t> values(static_cast<size_t>(n));
    ops->Download(from, values.data(), values.size() * sizeof(int32_t));
    REQUIRE(ops->Synchronize().ok());
    return values;
  };
  using Ints = std::vector<int32_t>;
  const std::vector<NewBlock> blocks = {{0, 2, 0, 5}, {0, 2, 1, 6}, {1, 2, 0, 7},
                                        {1, 2, 1, 8}, {0, 1, 0, 9}, {1, 1, 0, 1}};
  const Ints sampled = {10, 11, 12, 13};
  ops->Upload(sampled.data(), step->sampled, 16);
  const std::vector<StepSeq> seqs = {{2, 15, 2}, {1, 3, 1}};
  const Ints ids = {40, 41, kSampledToken};
  ops->BuildStep({.seqs = seqs, .token_ids = ids, .new_blocks = blocks, .n_tokens = 3}, step.get());
  CHECK(ints(step->token_ids, 3) == Ints{40, 41, 11});
  CHECK(ints(step->positions, 3) == Ints{15, 16, 3});
  CHECK(ints(step->seq_starts, 3) == Ints{0, 2, 3});
  CHECK(ints(step->seq_positions, 2) == Ints{15, 3});
  CHECK(ints(step->seq_slots, 2) == Ints{2, 1});
  CHECK(ints(step->groups[0].kv_slots, 3) == Ints{5 * 16 + 15, 6 * 16, 9 * 16 + 3});
  CHECK(ints(step->groups[1].kv_slots, 3) == Ints{7 * 16 + 15, 8 * 16, 16 + 3});

  // Block tables and sampled tokens persist from the previous step.
  const std::vector<StepSeq> next = {{2, 17, 1}};
  const Ints next_ids = {kSampledToken};
  ops->BuildStep({.seqs = next, .token_ids = next_ids, .n_tokens = 1, .n_padding = 1}, step.get());
  CHECK(ints(step->token_ids, 1) == Ints{12});
  CHECK(ints(step->groups[0].kv_slots, 2) == Ints{6 * 16 + 1, -1});
  CHECK(step->n_tokens == 2);

  const Matrix table = PackedMatrix(*ops, 50, 4, DType::kF32, RandomFloats(200, 1));
  const Values out(*ops, std::vector<float>(8, NAN));
  const auto embed = [&] {
    ops->Embed({.ids = step->token_ids, .table = &table, .scale = 1, .out = out, .n_tokens = 2});
  };
  auto recording = ops->Record(embed);
  REQUIRE(recording.ok());
  CHECK(std::isnan(out.Get()[0]));
  (*recording)->Replay();
  const std::vector<float> first = out.Get();
  const Ints other_ids = {3};
  ops->BuildStep({.seqs = next, .token_ids = other_ids, .n_tokens = 1, .n_padding = 1}, step.get());
  (*recording)->Replay();
  const std::vector<float> second = out.Get();
  embed();
  CHECK(out.Get() == second);
  CHECK(first != second);
}

TEST_CASE("a one-row sequence waits until all of its shared blocks are filled") {
  const auto ops = NewCudaOps();
  const auto step =
      *ops->NewStepInputs({.max_tokens = 32, .max_slots = 4, .max_blocks = 4, .groups = {{0}}});
  // Slot 0 fills a block, and slot 1 adopts it. Slot 2 adopted blocks in an earlier step. Slot 3
  // grows.
  const std::vector<NewBlock> blocks = {
      {0, 0, 0, 5}, {0, 0, 1, 6}, {0, 1, 0, 5}, {0, 1, 1, 7}, {0, 3, 2, 8}};
  const std::vector<StepSeq> seqs = {{0, 0, 17}, {1, 16, 1}, {2, 20, 1}, {3, 32, 1}};
  const std::vector<int32_t> ids(20, 1);
  ops->BuildStep({.seqs = seqs, .token_ids = ids, .new_blocks = blocks, .n_tokens = 20},
                 step.get());
  std::vector<cuda::PlannedDecode> decodes(3);
  ops->Download(static_cast<cuda::CudaStepInputs&>(*step).plans[0].decodes, decodes.data(),
                decodes.size() * sizeof(decodes[0]));
  REQUIRE(ops->Synchronize().ok());
  CHECK(decodes[0].n_earlier == 0);
  CHECK(decodes[1].n_earlier == 20);
  CHECK(decodes[2].n_earlier == 32);
}

}  // namespace
}  // namespace stagecoach::kernels

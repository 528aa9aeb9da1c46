// Experts on a GPU under load: thousands of layers with many kinds of routing, in a row, recorded,
// and beside another stream. A kernel that does not end ends the process, because nothing else can
// stop it.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "common/mutex.h"
#include "kernels/cuda/testing/device_values.h"

namespace stagecoach::kernels {
namespace {

constexpr DType kType = DType::kBF16;

// Ends the process unless it is destroyed in time.
class Watchdog {
 private:
  std::jthread thread_{[](const std::stop_token& stop) {
    if (WaitForStop(stop, std::chrono::minutes(2))) return;
    std::fputs("the GPU has been busy for two minutes: a kernel does not end\n", stderr);
    std::_Exit(1);
  }};
};

// Grouped GEMMs are the standard way where the device has them.
std::unique_ptr<Ops> OpsWithoutGroupedGemms() {
  constexpr const char* kSwitch = "STAGECOACH_GROUPED_GEMM";
  setenv(kSwitch, "off", /*overwrite=*/1);
  const absl::Cleanup restore = [] { unsetenv(kSwitch); };
  return NewCudaOps();
}

struct Shape {
  int32_t n_experts, n_used, hidden, width;
};

// Matrices of some layers, which all Ops of the device can use. Layers and experts have different
// parts of the same random values.
class Layers {
 public:
  Layers(Ops& ops, const Shape& shape, int32_t n_layers) : n_experts_(shape.n_experts) {
    const int32_t n = n_layers * shape.n_experts;
    Make(ops, n, 2 * shape.width, shape.hidden, &up_);
    Make(ops, n, shape.hidden, shape.width, &down_);
  }
  std::span<const Matrix> up(int32_t layer) const { return Of(up_, layer); }
  std::span<const Matrix> down(int32_t layer) const { return Of(down_, layer); }

 private:
  static void Make(Ops& ops, int32_t n, int32_t rows, int32_t cols, std::vector<Matrix>* matrices) {
    constexpr size_t kApart = 24;  // values from part to part
    const size_t of_matrix = static_cast<size_t>(rows) * static_cast<size_t>(cols);
    const std::vector<float> values = RandomFloats(of_matrix + static_cast<size_t>(n) * kApart, 1,
                                                   1 / std::sqrt(static_cast<float>(cols)));
    std::vector<uint16_t> stored(values.size());
    for (size_t i = 0; i < values.size(); ++i) StoreElement(stored.data(), kType, i, values[i]);
    for (int32_t i = 0; i < n; ++i) {
      matrices->push_back(*ops.NewMatrix(rows, cols, kType));
      ops.PackRows(matrices->back(), 0, rows, stored.data() + static_cast<size_t>(i) * kApart,
                   kType);
    }
    REQUIRE(ops.Synchronize().ok());
  }
  std::span<const Matrix> Of(const std::vector<Matrix>& matrices, int32_t layer) const {
    return std::span(matrices).subspan(static_cast<size_t>(layer * n_experts_),
                                       static_cast<size_t>(n_experts_));
  }

  const int32_t n_experts_;
  std::vector<Matrix> up_, down_;
};

enum class Routing { kEven, kSkewed, kOneSet, kInTurns, kHalf };
constexpr std::array kRoutings = {Routing::kEven, Routing::kSkewed, Routing::kOneSet,
                                  Routing::kInTurns, Routing::kHalf};

// Logits that make rows choose experts so.
std::vector<float> LogitsOf(const Shape& shape, int32_t n_tokens, Routing routing, uint32_t seed) {
  const int32_t n = shape.n_experts;
  std::vector<float> logits =
      RandomFloats(static_cast<size_t>(n_tokens) * static_cast<size_t>(n), seed);
  for (int32_t t = 0; t < n_tokens; ++t) {
    float* const row = logits.data() + int64_t{t} * n;
    for (int32_t e = 0; e < n; ++e) {
      if (routing == Routing::kSkewed) row[e] -= 0.1f * static_cast<float>(e);
      // Some experts of many have all rows, and the others none.
      if (routing == Routing::kOneSet && e % (n / shape.n_used) == 1) row[e] += 100;
      // Each row has other experts than the row before.
      if (routing == Routing::kInTurns && (e + t) % (n / shape.n_used) == 0) row[e] += 100;
      if (routing == Routing::kHalf && e % 2 == 0) row[e] -= 100;
    }
  }
  return logits;
}

// A step's inputs, and what it gave the first time.
struct TestStep {
  int32_t n_tokens;
  Routing routing;
  uint32_t seed;
  std::vector<float> logits = {}, results = {};
};

// Calls routing and experts as a model does, layer after layer, with memory for several steps.
class Runner {
 public:
  static constexpr int32_t kMostTokens = 2048;
  static constexpr int kSlots = 8;

  Runner(Ops& ops, const Shape& shape, const Layers& layers, int32_t n_layers)
      : ops_(ops),
        shape_(shape),
        layers_(layers),
        n_layers_(n_layers),
        x_(ops, RandomFloats(Elements(shape.hidden), 3), kType),
        experts_(ops, std::vector<int32_t>(Elements(shape.n_used))),
        weights_(ops, std::vector<float>(Elements(shape.n_used))),
        scratch_(*ops.Allocate(ops.ExpertScratchBytes(
            {kMostTokens, shape.n_experts, shape.n_used, shape.hidden, shape.width}))) {
    for (int i = 0; i < kSlots; ++i) {
      logits_.emplace_back(ops, std::vector<float>(Elements(shape.n_experts)));
      out_.emplace_back(ops, std::vector<float>(Elements(shape.hidden)));
    }
  }

  // Copies a step's inputs to `slot`.
  void Prepare(const TestStep& step, int slot) {
    const auto at = static_cast<size_t>(slot);
    ops_.Upload(step.logits.data(), logits_[at].f32(), step.logits.size() * sizeof(float));
    const std::vector<float> zeros(Bytes(step.n_tokens) / sizeof(float));
    ops_.Upload(zeros.data(), out_[at].f32(), Bytes(step.n_tokens));
  }
  // Adds what all layers give to the slot's result.
  void Run(int32_t n_tokens, int slot) {
    const auto at = static_cast<size_t>(slot);
    for (int32_t layer = 0; layer < n_layers_; ++layer) {
      ops_.Route({.logits = logits_[at].f32(),
                  .experts = experts_.data(),
                  .weights = weights_.f32(),
                  .n_tokens = n_tokens,
                  .n_experts = shape_.n_experts,
                  .n_used = shape_.n_used,
                  .over_used = true});
      ops_.ExpertMlp({.x = x_,
                      .experts = experts_.data(),
                      .weights = weights_.f32(),
                      .up = layers_.up(layer),
                      .down = layers_.down(layer),
                      .out = out_[at].f32(),
                      .scratch = scratch_.data.get(),
                      .n_tokens = n_tokens,
                      .n_used = shape_.n_used,
                      .kind = Activation::kSilu});
    }
  }
  std::vector<float> Result(int32_t n_tokens, int slot) {
    std::vector<float> result(Bytes(n_tokens) / sizeof(float));
    ops_.Download(out_[static_cast<size_t>(slot)].f32(), result.data(), Bytes(n_tokens));
    return result;
  }
  std::vector<float> ResultOf(const TestStep& step) {
    Prepare(step, 0);
    Run(step.n_tokens, 0);
    return Result(step.n_tokens, 0);
  }
  Ops& ops() { return ops_; }

 private:
  static size_t Elements(int32_t width) {
    return static_cast<size_t>(kMostTokens) * static_cast<size_t>(width);
  }
  size_t Bytes(int32_t n_tokens) const {
    return static_cast<size_t>(n_tokens) * static_cast<size_t>(shape_.hidden) * sizeof(float);
  }

  Ops& ops_;
  const Shape shape_;
  const Layers& layers_;
  const int32_t n_layers_;
  const Values x_;
  const Ids experts_;
  const Values weights_;
  const Buffer scratch_;
  std::vector<Values> logits_, out_;
};

bool IsSame(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Steps of 1 to kMostTokens rows with every routing.
std::vector<TestStep> AllSteps(const Shape& shape) {
  std::vector<TestStep> steps;
  for (const int32_t n_tokens : {1, 2, 5, 16, 33, 64, 100, 256, 257, 600, 1024, 2048}) {
    for (const Routing routing : kRoutings) {
      TestStep step{n_tokens, routing, static_cast<uint32_t>(steps.size())};
      step.logits = LogitsOf(shape, n_tokens, routing, step.seed);
      steps.push_back(std::move(step));
    }
  }
  return steps;
}

// Runs random steps, several at once without waiting. Returns how many gave other bits than before.
int RunInRandomOrder(Runner& runner, const std::vector<TestStep>& steps, int n_rounds,
                     uint32_t seed) {
  std::mt19937 random(seed);
  int n_different = 0;
  for (int round = 0; round < n_rounds; ++round) {
    std::array<size_t, Runner::kSlots> chosen{};
    for (size_t& step : chosen) step = random() % steps.size();
    for (int i = 0; i < Runner::kSlots; ++i) runner.Prepare(steps[chosen[i]], i);
    for (int i = 0; i < Runner::kSlots; ++i) runner.Run(steps[chosen[i]].n_tokens, i);
    for (int i = 0; i < Runner::kSlots; ++i) {
      const TestStep& step = steps[chosen[i]];
      n_different += IsSame(runner.Result(step.n_tokens, i), step.results) ? 0 : 1;
    }
  }
  return n_different;
}

// Replays a recorded step of each number of rows, with another routing each time.
void ReplaySteps(Runner& runner, const std::vector<TestStep>& steps, int n_rounds) {
  for (size_t first = 0; first < steps.size(); first += kRoutings.size()) {
    const int32_t n_tokens = steps[first].n_tokens;
    auto recording = runner.ops().Record([&] { runner.Run(n_tokens, 0); });
    REQUIRE(recording.ok());
    INFO("recorded with " << n_tokens << " rows");
    int n_different = 0;
    for (int i = 0; i < n_rounds; ++i) {
      const TestStep& step = steps[first + static_cast<size_t>(i) % kRoutings.size()];
      runner.Prepare(step, 0);
      (*recording)->Replay();
      n_different += IsSame(runner.Result(n_tokens, 0), step.results) ? 0 : 1;
    }
    CHECK(n_different == 0);
  }
}

TEST_CASE("ExpertMlp under load: every routing, in a row and recorded, gives the same bits") {
  struct Load {
    Shape shape;
    int32_t n_layers;
    int n_rounds;
  };
  for (const auto& [shape, n_layers, n_rounds] :
       {Load{{64, 8, 256, 192}, 4, 60}, Load{{8, 2, 512, 896}, 3, 40},
        Load{{128, 8, 2048, 768}, 1, 25}}) {
    INFO(shape.n_experts << " experts, hidden " << shape.hidden);
    const Watchdog watchdog;
    const auto ops = NewCudaOps(), other_way = OpsWithoutGroupedGemms();
    const Layers layers(*ops, shape, n_layers);
    std::vector<TestStep> steps = AllSteps(shape);
    Runner runner(*ops, shape, layers, n_layers), other(*other_way, shape, layers, n_layers);
    for (TestStep& step : steps) {
      step.results = runner.ResultOf(step);
      INFO(step.n_tokens << " rows, routing " << static_cast<int>(step.routing));
      CHECK(WorstError(step.results, other.ResultOf(step)) < 3 * n_layers * Step(kType));
    }
    CHECK(RunInRandomOrder(runner, steps, n_rounds, 5) == 0);
    ReplaySteps(runner, steps, n_rounds);
    REQUIRE(ops->Synchronize().ok());
  }
}

TEST_CASE("ExpertMlp under load: two streams at once give the same bits") {
  constexpr Shape kShape{64, 8, 512, 256};
  constexpr int32_t kLayers = 3;
  const Watchdog watchdog;
  const std::array<std::unique_ptr<Ops>, 2> ops = {NewCudaOps(), NewCudaOps()};
  const Layers layers(*ops[0], kShape, kLayers);
  Runner first(*ops[0], kShape, layers, kLayers), second(*ops[1], kShape, layers, kLayers);
  std::vector<TestStep> steps = AllSteps(kShape);
  for (TestStep& step : steps) step.results = first.ResultOf(step);
  std::atomic<int> n_different = 0;
  {
    const std::jthread beside([&] { n_different += RunInRandomOrder(second, steps, 60, 6); });
    n_different += RunInRandomOrder(first, steps, 60, 7);
  }
  CHECK(n_different == 0);
  for (const auto& each : ops) REQUIRE(each->Synchronize().ok());
}

TEST_CASE("ExpertMlp under load: batch-invariant rows have the same bits with every tile height") {
  constexpr Shape kShape{16, 4, 256, 192};
  const Watchdog watchdog;
  const auto ops = NewCudaOps(/*batch_invariant=*/true);
  const Layers layers(*ops, kShape, 2);
  Runner runner(*ops, kShape, layers, 2);
  for (const Routing routing : kRoutings) {
    TestStep all{Runner::kMostTokens, routing, 9};
    all.logits = LogitsOf(kShape, all.n_tokens, routing, all.seed);
    const std::vector<float> together = runner.ResultOf(all);
    for (const int32_t n_tokens : {1, 3, 20, 60, 100, 200, 400, 1000}) {
      TestStep some{n_tokens, routing, all.seed};
      some.logits.assign(all.logits.begin(),
                         all.logits.begin() + int64_t{n_tokens} * kShape.n_experts);
      const std::vector<float> result = runner.ResultOf(some);
      INFO(n_tokens << " rows, routing " << static_cast<int>(routing));
      CHECK(std::memcmp(result.data(), together.data(), result.size() * sizeof(float)) == 0);
    }
  }
}

}  // namespace
}  // namespace stagecoach::kernels

// A connection to a server, with errors in words that help at a terminal.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/connection.h"
#include "common/mutex.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::cli {

using PieceFn = std::function<void(const v1::GenerateResponse&)>;

// Cuts an answer short from another thread. Thread-safe.
class Canceller {
 public:
  void Cancel();

  // For clients: what cancels the call that runs now; nothing: none runs. At once where Cancel came
  // before.
  void Set(std::function<void()> action);

 private:
  Mutex mutex_;
  bool is_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> action_ ABSL_GUARDED_BY(mutex_);
};

// Thread-safe.
class Client {
 public:
  virtual ~Client() = default;

  // Calls `on_piece` for every message of the stream, on the caller's thread. CANCELLED after
  // `canceller` (may be null) was asked to.
  virtual absl::Status Stream(const v1::GenerateRequest& request, const PieceFn& on_piece,
                              Canceller* canceller = nullptr) const = 0;
  virtual absl::Status Stream(const v1::ChatRequest& request, const PieceFn& on_piece,
                              Canceller* canceller = nullptr) const = 0;
  // The one model served: `id` and `max_model_len` at least. UNAVAILABLE when no server answers
  // within some seconds.
  virtual absl::StatusOr<v1::Model> GetModel() const = 0;
};

// By gRPC or HTTP, as the address says. INVALID_ARGUMENT for one that cannot be.
absl::StatusOr<std::unique_ptr<Client>> Connect(const Connection& connection);

}  // namespace stagecoach::cli

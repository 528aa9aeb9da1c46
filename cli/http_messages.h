// Converts requests of the gRPC API to bodies of OpenAI's HTTP API, and HTTP events to messages of
// the gRPC API.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::cli {

// The bodies ask for a stream with usage. INVALID_ARGUMENT for a field that HTTP does not have.
absl::StatusOr<boost::json::object> ToHttp(const v1::GenerateRequest& request);
absl::StatusOr<boost::json::object> ToHttp(const v1::ChatRequest& request);

// One message per choice in the event; usage is a message of its own.
std::vector<v1::GenerateResponse> PiecesOf(const boost::json::object& event);
// The error of an event that ends a stream early; OK for all other events.
absl::Status EventError(const boost::json::object& event);

// The first model in the answer of /v1/models.
absl::StatusOr<v1::Model> ModelOf(std::string_view models);

// Splits a byte stream into server-sent events; the bytes may be cut anywhere. `on_event` receives
// each event's data if it is a JSON object, and the event's id if it is a number that stands before
// the data. Other data is skipped.
class EventReader {
 public:
  using EventFn = std::function<void(const boost::json::object&, std::optional<uint64_t> id)>;

  explicit EventReader(EventFn on_event) : on_event_(std::move(on_event)) {}
  void Push(std::string_view bytes);
  // Whether [DONE] has come.
  bool is_done() const { return is_done_; }

 private:
  void TakeLine();

  const EventFn on_event_;
  std::string line_;
  std::optional<uint64_t> id_;
  bool is_done_ = false;
};

}  // namespace stagecoach::cli

// The gRPC API's requests as bodies of OpenAI's HTTP API, and its events as the gRPC API's
// messages.
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::cli {

// Streamed, with usage. INVALID_ARGUMENT for what has no place there.
absl::StatusOr<boost::json::object> ToHttp(const v1::GenerateRequest& request);
absl::StatusOr<boost::json::object> ToHttp(const v1::ChatRequest& request);

// One for each choice in the event; usage comes in one of its own.
std::vector<v1::GenerateResponse> PiecesOf(const boost::json::object& event);
// What an event that ends a stream early says; OK for others.
absl::Status EventError(const boost::json::object& event);

// The first of /v1/models.
absl::StatusOr<v1::Model> ModelOf(std::string_view models);

// Takes server-sent events apart, wherever their bytes are cut. `on_event` gets their data; what is
// no JSON object, as [DONE], is left out.
class EventReader {
 public:
  explicit EventReader(std::function<void(const boost::json::object&)> on_event)
      : on_event_(std::move(on_event)) {}
  void Push(std::string_view bytes);

 private:
  const std::function<void(const boost::json::object&)> on_event_;
  std::string line_;
};

}  // namespace stagecoach::cli

// Client over OpenAI's HTTP API; works with this server and with others.
#pragma once

#include <atomic>
#include <boost/json/object.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "cli/client.h"
#include "cli/resumed_stream.h"

namespace stagecoach::cli {

// Thread-safe; each call opens its own connection. The pieces omit what HTTP does not carry (token
// ids, the server's own timing); the last piece has the times measured by this client.
// INVALID_ARGUMENT for requests that HTTP cannot express: token ids as a prompt, log-probabilities.
class HttpClient final : public Client {
 public:
  // INVALID_ARGUMENT for an invalid URL or a certificate file that cannot be read.
  static absl::StatusOr<std::unique_ptr<HttpClient>> Make(const Connection& connection);

  absl::Status Stream(const v1::GenerateRequest& request, const PieceFn& on_piece,
                      Canceller* canceller) const override;
  absl::Status Stream(const v1::ChatRequest& request, const PieceFn& on_piece,
                      Canceller* canceller) const override;
  absl::StatusOr<v1::Model> GetModel() const override;

 private:
  class Calls;
  struct Url {
    bool tls = false;
    std::string host, port;
    std::string base;  // path before /v1; usually ""
  };
  using BodyFn = std::function<void(std::string_view)>;

  HttpClient(Connection connection, Url url);
  // `on_body` receives the body of a successful response as it arrives.
  CallEnd Ask(std::string_view method, const std::string& path, const std::string& body,
              const BodyFn& on_body, Canceller* canceller) const;
  absl::Status StreamEvents(const std::string& path, boost::json::object body,
                            const PieceFn& on_piece, Canceller* canceller) const;

  const Connection connection_;
  const Url url_;
  mutable std::atomic<bool> knows_server_ = false;  // GetModel has succeeded
};

}  // namespace stagecoach::cli

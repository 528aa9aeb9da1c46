// Client over OpenAI's HTTP API, this server's or another's.
#pragma once

#include <memory>
#include <string>

#include "cli/client.h"

namespace stagecoach::cli {

// Thread-safe; a connection a call. What HTTP does not say (token ids, the server's own times) is
// left out of the pieces; the last one's times are those seen here. INVALID_ARGUMENT for what it
// cannot ask for: token ids as a prompt, log-probabilities.
class HttpClient final : public Client {
 public:
  // INVALID_ARGUMENT for a URL that is none, and certificates that cannot be read.
  static absl::StatusOr<std::unique_ptr<HttpClient>> Make(const Connection& connection);

  absl::Status Stream(const v1::GenerateRequest& request, const PieceFn& on_piece,
                      Canceller* canceller) const override;
  absl::Status Stream(const v1::ChatRequest& request, const PieceFn& on_piece,
                      Canceller* canceller) const override;
  absl::StatusOr<v1::Model> GetModel() const override;

 private:
  struct Url {
    bool tls = false;
    std::string host, port;
    std::string base;  // path before /v1; "" mostly
  };
  using BodyFn = std::function<void(std::string_view)>;

  HttpClient(Connection connection, Url url);
  // `body` empty: GET. `on_body` gets a good answer's body as it comes.
  absl::Status Ask(const std::string& path, const std::string& body, const BodyFn& on_body,
                   Canceller* canceller) const;
  absl::Status StreamEvents(const std::string& path, const std::string& body,
                            const PieceFn& on_piece, Canceller* canceller) const;

  const Connection connection_;
  const Url url_;
};

}  // namespace stagecoach::cli

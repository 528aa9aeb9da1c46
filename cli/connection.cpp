#include "cli/connection.h"

#include <CLI/CLI.hpp>

namespace stagecoach::cli {

bool Connection::is_url() const {
  return server.starts_with("http://") || server.starts_with("https://");
}

CLI::Option* AddConnectionFlags(CLI::App& app, Connection& connection) {
  CLI::Option* server =
      app.add_option("--server", connection.server,
                     "Server to ask: the gRPC address, or for chat and generate the URL of its "
                     "HTTP API too, http://HOST:PORT")
          ->type_name("HOST:PORT|URL")
          ->capture_default_str();
  app.add_option("--api-key", connection.api_key,
                 "Key that the server wants; other users of this machine see arguments, but not "
                 "the environment")
      ->type_name("KEY")
      ->envname("STAGECOACH_API_KEY");
  app.add_flag("--tls", connection.tls, "gRPC over TLS");
  app.add_option(
         "--tls-ca", connection.tls_ca,
         "PEM file with the certificates that the server's is checked by, which means --tls "
         "(default: the system's)")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  return server;
}

}  // namespace stagecoach::cli

// Flags by which router and workers authenticate each other. `stagecoach serve` needs none of them:
// it makes a secret for the programs that it starts.
#pragma once

#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace stagecoach {

struct InternalFlags {
  std::string secret_file;  // empty: no secret; all fields below: empty means not given
  std::string tls_cert, tls_key, tls_ca;  // paths; all three or none
  std::string tls_name;
};

void AddInternalFlags(CLI::App& app, InternalFlags& flags);

}  // namespace stagecoach

// The flags by which router and workers know each other. `stagecoach serve` needs none of them: it
// gives its programs a secret of its own.
#pragma once

#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace stagecoach {

struct InternalFlags {
  std::string secret_file;                // empty: none, as all below
  std::string tls_cert, tls_key, tls_ca;  // paths; all or none
  std::string tls_name;
};

void AddInternalFlags(CLI::App& app, InternalFlags& flags);

}  // namespace stagecoach

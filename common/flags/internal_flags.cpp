#include "common/flags/internal_flags.h"

#include <CLI/CLI.hpp>

namespace stagecoach {

void AddInternalFlags(CLI::App& app, InternalFlags& flags) {
  app.add_option("--secret-file", flags.secret_file,
                 "File of the secret that router and workers share, one line of 32 characters or "
                 "more; workers take orders from who has it (default: none)")
      ->type_name("FILE");
  CLI::Option* cert =
      app.add_option("--internal-tls-cert", flags.tls_cert,
                     "TLS between router and workers, in which each side shows a certificate: this "
                     "one's chain, PEM (default: no TLS)")
          ->type_name("FILE")
          ->check(CLI::ExistingFile);
  CLI::Option* key = app.add_option("--internal-tls-key", flags.tls_key, "Its private key, PEM")
                         ->type_name("FILE")
                         ->check(CLI::ExistingFile);
  CLI::Option* ca = app.add_option("--internal-tls-ca", flags.tls_ca,
                                   "Who must have signed the other side's certificate, PEM")
                        ->type_name("FILE")
                        ->check(CLI::ExistingFile);
  cert->needs(key)->needs(ca);
  key->needs(cert);
  ca->needs(cert);
  app.add_option("--internal-tls-name", flags.tls_name,
                 "Name that workers' certificates have (default: the host in their address)")
      ->type_name("NAME")
      ->needs(cert);
}

}  // namespace stagecoach

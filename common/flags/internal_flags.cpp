#include "common/flags/internal_flags.h"

#include <CLI/CLI.hpp>

namespace stagecoach {

void AddInternalFlags(CLI::App& app, InternalFlags& flags) {
  app.add_option("--secret-file", flags.secret_file,
                 "File with the secret that router and workers share: one line of 32 characters or "
                 "more; a worker refuses calls without it (default: none)")
      ->type_name("FILE");
  CLI::Option* cert = app.add_option("--internal-tls-cert", flags.tls_cert,
                                     "Mutual TLS between router and workers: this side's "
                                     "certificate chain, PEM (default: no TLS)")
                          ->type_name("FILE")
                          ->check(CLI::ExistingFile);
  CLI::Option* key =
      app.add_option("--internal-tls-key", flags.tls_key, "Private key of --internal-tls-cert, PEM")
          ->type_name("FILE")
          ->check(CLI::ExistingFile);
  CLI::Option* ca =
      app.add_option(
             "--internal-tls-ca", flags.tls_ca,
             "Certificate authority that must have signed the other side's certificate, PEM")
          ->type_name("FILE")
          ->check(CLI::ExistingFile);
  cert->needs(key)->needs(ca);
  key->needs(cert);
  ca->needs(cert);
  app.add_option(
         "--internal-tls-name", flags.tls_name,
         "Host name in the workers' certificates (default: the host of each worker's address)")
      ->type_name("NAME")
      ->needs(cert);
}

}  // namespace stagecoach

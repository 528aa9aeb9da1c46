#include "common/flags/internal_flags.h"

#include <CLI/CLI.hpp>

namespace stagecoach {

void AddInternalFlags(CLI::App& app, InternalFlags& flags) {
  app.add_option("--secret-file", flags.secret_file,
                 "File with the secret of the pipeline: one line of at least 32 characters. A "
                 "worker obeys only a router with the same secret (default: no secret)")
      ->type_name("FILE");
  CLI::Option* cert =
      app.add_option("--internal-tls-cert", flags.tls_cert,
                     "Certificate chain (PEM) of this program for TLS between router and workers. "
                     "Both sides show a certificate (default: no TLS)")
          ->type_name("FILE")
          ->check(CLI::ExistingFile);
  CLI::Option* key = app.add_option("--internal-tls-key", flags.tls_key,
                                    "Private key (PEM) of --internal-tls-cert")
                         ->type_name("FILE")
                         ->check(CLI::ExistingFile);
  CLI::Option* ca =
      app.add_option(
             "--internal-tls-ca", flags.tls_ca,
             "Certificates (PEM) of the authorities that may sign the other side's certificate")
          ->type_name("FILE")
          ->check(CLI::ExistingFile);
  cert->needs(key)->needs(ca);
  key->needs(cert);
  ca->needs(cert);
  app.add_option("--internal-tls-name", flags.tls_name,
                 "Name that the workers' certificates must have (default: the host of the worker's "
                 "address)")
      ->type_name("NAME")
      ->needs(cert);
}

}  // namespace stagecoach
